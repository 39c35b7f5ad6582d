#include "agent/model/generate.h"

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
                   std::to_string(model.config().vocabulary) + "), got " + std::to_string(token));
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

// Draws one token after another, each given the last `context` tokens of the text.
class Generator {
 public:
  static Result<Generator> create(Gpt& model, const GenerateOptions& options, int64_t capacity) {
    const kernels::Device device = model.stream().device();
    const kernels::ArenaPlan plan = plan_of(model.options(), capacity, device.type);
    kernels::Buffer owned;
    auto* memory = static_cast<std::byte*>(options.memory.data);
    if (options.memory.bytes < plan.bytes) {
      TRY_ASSIGN(owned, kernels::Buffer::allocate(device, plan.bytes, "a text"));
      memory = static_cast<std::byte*>(owned.data());
    }
    const auto part = [&](Part index) {
      return kernels::Workspace{memory + plan.parts[index].offset, plan.parts[index].bytes};
    };
    TRY_ASSIGN(MicroBatch batch,
               model.make_micro_batch({1, capacity, PassMode::kEvaluate}, part(kActivations)));
    Generator generator(model, options, std::move(batch));
    generator.window_ = static_cast<int32_t*>(part(kWindow).data);
    generator.draw_ = static_cast<Draw*>(part(kDraw).data);
    generator.workspace_ = part(kWorkspace);
    generator.owned_ = std::move(owned);
    TRY_ASSIGN(generator.host_, kernels::PinnedBuffer::allocate(
                                    device, part(kWindow).bytes + sizeof(Draw), "a draw"));
    return generator;
  }

  Result<int32_t> next(ParamStore& store, const std::vector<int32_t>& text) {
    kernels::Stream& stream = model_->stream();
    const ModelConfig& config = model_->config();
    const int64_t seen = std::min(static_cast<int64_t>(text.size()), config.context);
    const int64_t window = window_of(seen, config.context);
    TRY(put_text({text.end() - seen, text.end()}, window));
    TRY(model_->begin(batch_, {.tokens = window_,
                               .batch = 1,
                               .sequence = window,
                               .logits_begin = seen - 1,
                               .logits_rows = 1}));
    TRY(forward_pass(*model_, store, batch_));
    return draw(stream, config);
  }

 private:
  Generator(Gpt& model, const GenerateOptions& options, MicroBatch batch)
      : model_(&model), options_(options), random_(options.seed), batch_(std::move(batch)) {}

  // Padding after the text does not affect its last token.
  Status put_text(std::span<const int32_t> text, int64_t window) {
    auto* tokens = reinterpret_cast<int32_t*>(static_cast<Draw*>(host_.data()) + 1);
    std::ranges::copy(text, tokens);
    std::fill(tokens + text.size(), tokens + window, 0);
    return kernels::copy_bytes(
        model_->stream(),
        {.to = window_, .from = tokens, .bytes = static_cast<size_t>(window) * sizeof(int32_t)});
  }

  Result<int32_t> draw(kernels::Stream& stream, const ModelConfig& config) {
    auto* host = static_cast<Draw*>(host_.data());
    *host = {.uniform = random_.uniform()};
    TRY(kernels::copy_bytes(stream, {.to = draw_, .from = host, .bytes = sizeof(Draw)}));
    model_->ops().sample(stream, {.logits = batch_.logits(),
                                  .uniforms = &draw_->uniform,
                                  .tokens = &draw_->token,
                                  .rows = 1,
                                  .vocabulary = config.vocabulary,
                                  .stride = padded_vocabulary(config, 1),
                                  .temperature = options_.temperature,
                                  .top_k = options_.top_k,
                                  .workspace = workspace_});
    TRY(kernels::copy_bytes(stream, {.to = host, .from = draw_, .bytes = sizeof(Draw)}));
    TRY(stream.synchronize());
    return host->token;
  }

  Gpt* model_;
  GenerateOptions options_;
  Random random_;
  MicroBatch batch_;
  int32_t* window_ = nullptr;  // from here on: on the device
  Draw* draw_ = nullptr;
  kernels::Workspace workspace_;
  kernels::Buffer owned_;       // if the memory is not caller-owned
  kernels::PinnedBuffer host_;  // a Draw, followed by the tokens
};

}  // namespace

size_t generate_bytes(const GptOptions& options, kernels::DeviceType device) {
  return plan_of(options, options.config.context, device).bytes;
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
