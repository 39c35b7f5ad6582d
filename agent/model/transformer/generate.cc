#include "agent/model/transformer/generate.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "agent/model/passes.h"
#include "agent/model/stage_relay.h"
#include "common/base/random.h"
#include "kernels/device/arena.h"

namespace lockstep::model {
namespace {

constexpr int64_t kShortestWindow = 16;

Status check_arguments(const Gpt& model, const GenerateOptions& options) {
  if (model.config().design().is_bidirectional) {
    return invalid("[generate] a model that predicts masked tokens cannot continue a text");
  }
  if (model.stage() != whole_model(model.config()) && options.relay == nullptr) {
    return invalid("[generate] expected all blocks, got a pipeline stage without the others");
  }
  if (options.prompt.empty()) return invalid("[generate] expected a prompt, got none");
  for (const int32_t token : options.prompt) {
    if (token >= 0 && token < model.config().vocabulary) continue;
    return invalid("[generate] expected tokens in [0, " +
                       std::to_string(model.config().vocabulary) + "), got " +
                       std::to_string(token),
                   Blame::kConfig);
  }
  return {};
}

// Returns the sequence length of the pass for `tokens` tokens. Lengths double, so that there are
// only a few: each new shape costs kernel preparation. They are multiples of the parts that shards
// keep of the rows, as the context is. Padding after the last token does not affect it (causal
// attention).
int64_t window_of(int64_t tokens, const GptOptions& options, const TensorShard& shard) {
  int64_t window = kShortestWindow;
  while (window < tokens) window *= 2;
  const int64_t parts = options.sequence_parallel ? shard.size : 1;
  return std::min((window + parts - 1) / parts * parts, options.config.context);
}

struct Draw {
  float uniform = 0;
  int32_t token = 0;
};

// Device memory for a text of up to `capacity` tokens. The chunks of a stage, whose passes take
// turns, share all of it: what differs between them comes last.
enum Part : size_t { kWindow, kDraw, kWorkspace, kLogits, kActivations };
kernels::ArenaPlan plan_of(const GptOptions& options, const TensorShard& shard, int64_t capacity,
                           kernels::DeviceType device) {
  const ActivationShape shape{1, capacity, PassMode::kEvaluate};
  const bool gathers = shard.size > 1 && has_head(options.stage, options.config);
  const int64_t gathered = gathers ? padded_vocabulary(options.config, shard.size) : 0;
  const int64_t value_bytes = activation_options(options, device).value_bytes;
  const Result<kernels::ArenaPlan> plan = kernels::plan_arena(
      {{kernels::ArenaUse::kWorkspace, "tokens", static_cast<size_t>(capacity) * sizeof(int32_t)},
       {kernels::ArenaUse::kWorkspace, "a draw", sizeof(Draw)},
       {kernels::ArenaUse::kWorkspace, "logits",
        kernels::sample_workspace(options.config.vocabulary)},
       {kernels::ArenaUse::kWorkspace, "logits of all shards",
        static_cast<size_t>(gathered * value_bytes)},
       {kernels::ArenaUse::kActivations, "of a text",
        gpt_memory(options, shard, shape, device).activations}});
  CHECK(plan.ok());
  return *plan;
}

// A draw, followed by the tokens of a text.
size_t pinned_bytes(int64_t capacity) {
  return sizeof(Draw) + static_cast<size_t>(capacity) * sizeof(int32_t);
}

// Draws one token after another, each given the last `context` tokens of the text.
class Generator {
 public:
  static Result<Generator> create(Gpt& model, const GenerateOptions& options, int64_t capacity) {
    std::vector<Gpt*> chunks{&model};
    for (Model* later : options.later_chunks) chunks.push_back(static_cast<Gpt*>(later));
    Generator generator(model, options);
    TRY(generator.provide_memory(chunks, capacity));
    for (Gpt* chunk : chunks) {
      const kernels::Workspace memory = generator.part(kActivations, *chunk, capacity);
      TRY_ASSIGN(GptBatch batch,
                 chunk->make_micro_batch({1, capacity, PassMode::kEvaluate}, memory));
      generator.chunks_.push_back({chunk, std::move(batch)});
    }
    const auto part = [&](Part index) { return generator.part(index, *chunks.back(), capacity); };
    generator.window_ = static_cast<int32_t*>(part(kWindow).data);
    generator.draw_ = static_cast<Draw*>(part(kDraw).data);
    generator.workspace_ = part(kWorkspace);
    generator.gathered_ = {part(kLogits).data, generator.chunks_.back().batch.logits().dtype};
    return generator;
  }

  Result<int32_t> next(ParamStore& store, const std::vector<int32_t>& text) {
    const ModelConfig& config = model_->config();
    const int64_t seen = std::min(static_cast<int64_t>(text.size()), config.context);
    const int64_t window = window_of(seen, model_->options(), model_->shard());
    TRY(put_text({text.end() - seen, text.end()}, window));
    for (Chunk& chunk : chunks_) TRY(pass(chunk, store, {.seen = seen, .window = window}));
    if (options_.relay == nullptr) return draw();
    int32_t token = 0;
    if (has_head(chunks_.back().model->stage(), config)) {
      TRY_ASSIGN(token, draw());
    }
    return options_.relay->share(token);
  }

 private:
  // The text on its way through a chunk of the model.
  struct Chunk {
    Gpt* model;
    GptBatch batch;
  };
  struct Lengths {
    int64_t seen = 0;    // tokens of the text
    int64_t window = 0;  // with padding
  };
  Generator(Gpt& model, const GenerateOptions& options)
      : model_(&model), options_(options), random_(options.seed) {}

  // Allocates what is not caller-owned.
  Status provide_memory(const std::vector<Gpt*>& chunks, int64_t capacity) {
    const kernels::Device device = model_->stream().device();
    size_t bytes = 0;
    for (const Gpt* chunk : chunks) {
      bytes =
          std::max(bytes, plan_of(chunk->options(), chunk->shard(), capacity, device.type).bytes);
    }
    memory_ = options_.memory.device.data;
    if (options_.memory.device.bytes < bytes) {
      TRY_ASSIGN(owned_, kernels::Buffer::allocate(device, bytes, "a text"));
      memory_ = owned_.workspace().data;
    }
    host_ = static_cast<Draw*>(options_.memory.pinned.data);
    if (options_.memory.pinned.bytes < pinned_bytes(capacity)) {
      TRY_ASSIGN(owned_pinned_,
                 kernels::PinnedBuffer::allocate(device, pinned_bytes(capacity), "a draw"));
      host_ = static_cast<Draw*>(owned_pinned_.data());
    }
    return {};
  }

  kernels::Workspace part(Part index, const Gpt& chunk, int64_t capacity) const {
    const kernels::ArenaPlan plan =
        plan_of(chunk.options(), chunk.shard(), capacity, chunk.stream().device().type);
    return {static_cast<std::byte*>(memory_) + plan.parts[index].offset, plan.parts[index].bytes};
  }

  Status pass(Chunk& chunk, ParamStore& store, const Lengths& lengths) {
    const Stage& stage = chunk.model->stage();
    const bool is_last = has_head(stage, model_->config());
    TRY(chunk.batch.begin(GptInput{.tokens = window_,
                                   .batch = 1,
                                   .sequence = lengths.window,
                                   .logits_begin = lengths.seen - 1,
                                   .logits_rows = is_last ? 1 : 0}));
    if (stage.begin > 0) TRY(options_.relay->receive(chunk.batch));
    TRY(forward_pass(*chunk.model, store, chunk.batch));
    return is_last ? Status() : options_.relay->send(chunk.batch);
  }

  // Padding after the text does not affect its last token.
  Status put_text(std::span<const int32_t> text, int64_t window) {
    auto* tokens = reinterpret_cast<int32_t*>(host_ + 1);
    std::ranges::copy(text, tokens);
    std::fill(tokens + text.size(), tokens + window, 0);
    return kernels::copy_bytes(
        model_->stream(),
        {.to = window_, .from = tokens, .bytes = static_cast<size_t>(window) * sizeof(int32_t)});
  }

  Result<kernels::ConstView> gather_logits() {
    const kernels::ConstView mine = chunks_.back().batch.logits();
    const int64_t shards = model_->shard().size;
    if (shards == 1) return mine;
    TRY(model_->region().gather(mine, gathered_,
                                padded_vocabulary(model_->config(), shards) / shards));
    return kernels::ConstView(gathered_);
  }

  Result<int32_t> draw() {
    kernels::Stream& stream = model_->stream();
    const ModelConfig& config = model_->config();
    *host_ = {.uniform = random_.uniform()};
    TRY(kernels::copy_bytes(stream, {.to = draw_, .from = host_, .bytes = sizeof(Draw)}));
    TRY_ASSIGN(const kernels::ConstView logits, gather_logits());
    model_->ops().sample(stream, {.logits = logits,
                                  .uniforms = &draw_->uniform,
                                  .tokens = &draw_->token,
                                  .rows = 1,
                                  .vocabulary = config.vocabulary,
                                  .stride = padded_vocabulary(config, model_->shard().size),
                                  .temperature = options_.temperature,
                                  .top_k = options_.top_k,
                                  .workspace = workspace_});
    TRY(kernels::copy_bytes(stream, {.to = host_, .from = draw_, .bytes = sizeof(Draw)}));
    TRY(stream.synchronize());
    return host_->token;
  }

  Gpt* model_;
  GenerateOptions options_;
  Random random_;
  std::vector<Chunk> chunks_;
  void* memory_ = nullptr;  // from here on: on the device
  int32_t* window_ = nullptr;
  Draw* draw_ = nullptr;
  kernels::Workspace workspace_;
  kernels::View gathered_;  // logits of all shards
  Draw* host_ = nullptr;    // page-locked: a Draw, followed by the tokens
  kernels::Buffer owned_;   // if the memory is not caller-owned
  kernels::PinnedBuffer owned_pinned_;
};

}  // namespace

GenerateMemory generate_memory(const GptOptions& options, const TensorShard& shard,
                               kernels::DeviceType device) {
  const int64_t context = options.config.context;
  return {.device = plan_of(options, shard, context, device).bytes,
          .pinned = pinned_bytes(context)};
}

Result<std::vector<int32_t>> generate(Gpt& model, ParamStore& store,
                                      const GenerateOptions& options) {
  TRY(check_arguments(model, options));
  const int64_t context = model.config().context;
  const int64_t longest = static_cast<int64_t>(options.prompt.size()) + options.tokens;
  const int64_t capacity = window_of(std::min(longest, context), model.options(), model.shard());
  TRY_ASSIGN(Generator generator, Generator::create(model, options, capacity));
  std::vector<int32_t> text = options.prompt;
  for (int64_t drawn = 0; drawn < options.tokens; ++drawn) {
    TRY_ASSIGN(const int32_t token, generator.next(store, text));
    text.push_back(token);
  }
  const auto prompt_end = text.begin() + static_cast<std::ptrdiff_t>(options.prompt.size());
  return std::vector<int32_t>(prompt_end, text.end());
}

}  // namespace lockstep::model
