#include "agent/model/transformer/generate.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "agent/model/passes.h"
#include "common/base/random.h"
#include "kernels/device/arena.h"

namespace lockstep::model {
namespace {

constexpr int64_t kShortestWindow = 16;

Status check_arguments(const Gpt& model, const GenerateOptions& options) {
  if (model.stage() != whole_model(model.config()) || model.shard().size != 1) {
    return invalid("[generate] expected a whole model, got a pipeline stage or tensor shard");
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
// only a few: each new shape costs kernel preparation. Padding after the last token does not affect
// it (causal attention).
int64_t window_of(int64_t tokens, int64_t context) {
  int64_t window = kShortestWindow;
  while (window < tokens) window *= 2;
  return std::min(window, context);
}

struct Draw {
  float uniform = 0;
  int32_t token = 0;
};

// Device memory for a text of up to `capacity` tokens.
enum Part : size_t { kActivations, kWindow, kDraw, kWorkspace };
kernels::ArenaPlan plan_of(const GptOptions& options, int64_t capacity,
                           kernels::DeviceType device) {
  const ActivationShape shape{1, capacity, PassMode::kEvaluate};
  const Result<kernels::ArenaPlan> plan = kernels::plan_arena(
      {{kernels::ArenaUse::kActivations, "of a text",
        gpt_memory(options, {}, shape, device).activations},
       {kernels::ArenaUse::kWorkspace, "tokens", static_cast<size_t>(capacity) * sizeof(int32_t)},
       {kernels::ArenaUse::kWorkspace, "a draw", sizeof(Draw)},
       {kernels::ArenaUse::kWorkspace, "logits",
        kernels::sample_workspace(options.config.vocabulary)}});
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
    const kernels::Device device = model.stream().device();
    const kernels::ArenaPlan plan = plan_of(model.options(), capacity, device.type);
    GenerateOptions::Memory given = options.memory;
    kernels::Buffer owned;
    if (given.device.bytes < plan.bytes) {
      TRY_ASSIGN(owned, kernels::Buffer::allocate(device, plan.bytes, "a text"));
      given.device = owned.workspace();
    }
    kernels::PinnedBuffer owned_pinned;
    if (given.pinned.bytes < pinned_bytes(capacity)) {
      TRY_ASSIGN(owned_pinned,
                 kernels::PinnedBuffer::allocate(device, pinned_bytes(capacity), "a draw"));
      given.pinned = {owned_pinned.data(), owned_pinned.bytes()};
    }
    auto* memory = static_cast<std::byte*>(given.device.data);
    const auto part = [&](Part index) {
      return kernels::Workspace{memory + plan.parts[index].offset, plan.parts[index].bytes};
    };
    TRY_ASSIGN(GptBatch batch,
               model.make_micro_batch({1, capacity, PassMode::kEvaluate}, part(kActivations)));
    Generator generator(model, options, std::move(batch));
    generator.window_ = static_cast<int32_t*>(part(kWindow).data);
    generator.draw_ = static_cast<Draw*>(part(kDraw).data);
    generator.workspace_ = part(kWorkspace);
    generator.host_ = static_cast<Draw*>(given.pinned.data);
    generator.owned_ = std::move(owned);
    generator.owned_pinned_ = std::move(owned_pinned);
    return generator;
  }

  Result<int32_t> next(ParamStore& store, const std::vector<int32_t>& text) {
    kernels::Stream& stream = model_->stream();
    const ModelConfig& config = model_->config();
    const int64_t seen = std::min(static_cast<int64_t>(text.size()), config.context);
    const int64_t window = window_of(seen, config.context);
    TRY(put_text({text.end() - seen, text.end()}, window));
    TRY(batch_.begin(GptInput{.tokens = window_,
                              .batch = 1,
                              .sequence = window,
                              .logits_begin = seen - 1,
                              .logits_rows = 1}));
    TRY(forward_pass(*model_, store, batch_));
    return draw(stream, config);
  }

 private:
  Generator(Gpt& model, const GenerateOptions& options, GptBatch batch)
      : model_(&model), options_(options), random_(options.seed), batch_(std::move(batch)) {}

  // Padding after the text does not affect its last token.
  Status put_text(std::span<const int32_t> text, int64_t window) {
    auto* tokens = reinterpret_cast<int32_t*>(host_ + 1);
    std::ranges::copy(text, tokens);
    std::fill(tokens + text.size(), tokens + window, 0);
    return kernels::copy_bytes(
        model_->stream(),
        {.to = window_, .from = tokens, .bytes = static_cast<size_t>(window) * sizeof(int32_t)});
  }

  Result<int32_t> draw(kernels::Stream& stream, const ModelConfig& config) {
    *host_ = {.uniform = random_.uniform()};
    TRY(kernels::copy_bytes(stream, {.to = draw_, .from = host_, .bytes = sizeof(Draw)}));
    model_->ops().sample(stream, {.logits = batch_.logits(),
                                  .uniforms = &draw_->uniform,
                                  .tokens = &draw_->token,
                                  .rows = 1,
                                  .vocabulary = config.vocabulary,
                                  .stride = padded_vocabulary(config, 1),
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
  GptBatch batch_;
  int32_t* window_ = nullptr;  // from here on: on the device
  Draw* draw_ = nullptr;
  kernels::Workspace workspace_;
  Draw* host_ = nullptr;   // page-locked: a Draw, followed by the tokens
  kernels::Buffer owned_;  // if the memory is not caller-owned
  kernels::PinnedBuffer owned_pinned_;
};

}  // namespace

GenerateMemory generate_memory(const GptOptions& options, kernels::DeviceType device) {
  const int64_t context = options.config.context;
  return {.device = plan_of(options, context, device).bytes, .pinned = pinned_bytes(context)};
}

Result<std::vector<int32_t>> generate(Gpt& model, ParamStore& store,
                                      const GenerateOptions& options) {
  TRY(check_arguments(model, options));
  const int64_t context = model.config().context;
  const int64_t longest = static_cast<int64_t>(options.prompt.size()) + options.tokens;
  TRY_ASSIGN(Generator generator,
             Generator::create(model, options, window_of(std::min(longest, context), context)));
  std::vector<int32_t> text = options.prompt;
  for (int64_t drawn = 0; drawn < options.tokens; ++drawn) {
    TRY_ASSIGN(const int32_t token, generator.next(store, text));
    text.push_back(token);
  }
  const auto prompt_end = text.begin() + static_cast<std::ptrdiff_t>(options.prompt.size());
  return std::vector<int32_t>(prompt_end, text.end());
}

}  // namespace lockstep::model
