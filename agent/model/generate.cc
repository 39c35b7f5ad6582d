#include "agent/model/generate.h"

#include <algorithm>
#include <string>

#include "agent/model/passes.h"
#include "common/base/random.h"

namespace lockstep {
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

// The length of the pass that sees `tokens` of them: few different ones, since each new shape costs
// the kernels' preparation. What stands past the last token does not reach it (causal attention).
int64_t window_of(int64_t tokens, int64_t context) {
  int64_t window = kShortestWindow;
  while (window < tokens) window *= 2;
  return std::min(window, context);
}

}  // namespace

Result<std::vector<int32_t>> generate(Gpt& model, ParamStore& store,
                                      const GenerateOptions& options) {
  TRY(check_arguments(model, options));
  const ModelConfig& config = model.config();
  const int64_t longest = static_cast<int64_t>(options.prompt.size()) + options.tokens;
  const int64_t capacity = window_of(std::min(longest, config.context), config.context);
  TRY_ASSIGN(MicroBatch batch, model.make_micro_batch({1, capacity, PassMode::kEvaluate}));
  TRY_ASSIGN(Buffer workspace,
             Buffer::allocate(model.stream().device(), sample_workspace(config.vocabulary)));
  Random random(options.seed);
  std::vector<int32_t> text = options.prompt;
  std::vector<int32_t> window_tokens(static_cast<size_t>(capacity));
  for (int64_t drawn = 0; drawn < options.tokens; ++drawn) {
    const int64_t seen = std::min(static_cast<int64_t>(text.size()), config.context);
    const int64_t window = window_of(seen, config.context);
    std::copy(text.end() - seen, text.end(), window_tokens.begin());
    TRY(model.begin(batch, {.tokens = window_tokens.data(),
                            .batch = 1,
                            .sequence = window,
                            .logits_begin = seen - 1,
                            .logits_rows = 1}));
    TRY(forward_pass(model, store, batch));
    const int64_t stride = padded_vocabulary(config, 1);
    const float uniform = random.uniform();
    int32_t token = 0;
    model.ops().sample(model.stream(), {.logits = batch.logits(),
                                        .uniforms = &uniform,
                                        .tokens = &token,
                                        .rows = 1,
                                        .vocabulary = config.vocabulary,
                                        .stride = stride,
                                        .temperature = options.temperature,
                                        .top_k = options.top_k,
                                        .workspace = workspace.workspace()});
    text.push_back(token);
  }
  const auto prompt_end = text.begin() + static_cast<std::ptrdiff_t>(options.prompt.size());
  return std::vector<int32_t>(prompt_end, text.end());
}

}  // namespace lockstep
