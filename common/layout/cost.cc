#include "common/layout/cost.h"

#include "common/layout/parameters.h"

namespace lockstep {

double flops_per_token(const ModelConfig& config, int64_t sequence, FlopsFormula formula) {
  const auto parameters = static_cast<double>(parameter_count(config));
  const auto layers = static_cast<double>(config.layers);
  const auto width = static_cast<double>(config.width);
  const double attention = layers * width * static_cast<double>(sequence);
  switch (formula) {
    case FlopsFormula::kPalm:
      return 6 * parameters + 12 * attention;
    case FlopsFormula::kCausal:
      return 6 * parameters + 6 * attention;
    case FlopsFormula::kProducts:
      return 72 * layers * width * width +
             6 * static_cast<double>(padded_vocabulary(config, 1)) * width;
  }
  return 0;
}

MemoryPlan memory_plan(const ModelConfig& config, const MemoryRequest& request) {
  const int64_t parameters = parameter_arena(config, request.stage, request.shard).count;
  MemoryPlan plan;
  plan.weights = 4 * parameters;
  if (request.bf16_copy) plan.weight_copies = 2 * parameters;
  plan.activations =
      activation_arena(config, request.stage, request.shard, request.shape, request.options).bytes *
      request.micro_batches_in_flight;
  plan.scratch = backward_scratch(config, request.shard, request.shape, request.options).bytes;
  if (request.shape.mode == PassMode::kTrain) {
    plan.gradients = 4 * parameters;
    plan.optimizer = 8 * parameters;
  }
  return plan;
}

}  // namespace lockstep
