#include "agent/optim/adamw_optimizer.h"

namespace lockstep::optim {

Result<AdamWOptimizer> AdamWOptimizer::create(const ModelConfig& config,
                                              const ParameterArena& arena,
                                              const OptimizerArenas& arenas,
                                              const AdamWOptions& options, kernels::Device device,
                                              const kernels::OpTable& ops) {
  AdamWOptimizer optimizer;
  optimizer.ops_ = &ops;
  optimizer.options_ = options;
  optimizer.arenas_ = arenas;
  if (arenas.first_moments == nullptr) {
    const size_t bytes = static_cast<size_t>(arena.count) * sizeof(float);
    TRY_ASSIGN(optimizer.first_, kernels::Buffer::allocate(device, bytes, "AdamW's first moments"));
    TRY_ASSIGN(optimizer.second_,
               kernels::Buffer::allocate(device, bytes, "AdamW's second moments"));
    optimizer.arenas_.first_moments = optimizer.first_.f32();
    optimizer.arenas_.second_moments = optimizer.second_.f32();
  }
  const std::vector<Parameter> table = parameter_table(config);
  for (const ArenaEntry& entry : arena.entries) {
    const bool decays = table[static_cast<size_t>(entry.id)].weight_decay;
    optimizer.tensors_.push_back({
        .parameter = arenas.parameters + entry.offset,
        .gradient = arenas.gradients + entry.offset,
        .m = optimizer.first_moments() + entry.offset,
        .v = optimizer.second_moments() + entry.offset,
        .copy = arenas.copies == nullptr ? kernels::View()
                                         : kernels::View(arenas.copies + entry.offset),
        .count = entry.count,
        .weight_decay = decays ? static_cast<float>(options.weight_decay) : 0.0f,
    });
  }
  return optimizer;
}

void AdamWOptimizer::step(kernels::Stream& stream, const AdamWStep& step) {
  ops_->adamw(stream, {.tensors = tensors_,
                       .learning_rate = static_cast<float>(step.learning_rate),
                       .beta1 = static_cast<float>(options_.beta1),
                       .beta2 = static_cast<float>(options_.beta2),
                       .epsilon = static_cast<float>(options_.epsilon),
                       .gradient_scale = step.gradient_scale,
                       .device_scale = step.device_scale,
                       .step = step.step,
                       .rounding_seed = options_.rounding_seed});
}

void AdamWOptimizer::refresh_copies(kernels::Stream& stream, int64_t step) {
  int64_t first = 0;
  for (const kernels::AdamWTensor& tensor : tensors_) {
    if (tensor.copy) {
      ops_->cast(stream, {.x = tensor.parameter,
                          .out = tensor.copy,
                          .count = tensor.count,
                          .rounding_seed = step > 0 ? options_.rounding_seed : 0,
                          .step = step,
                          .first = first});
    }
    first += tensor.count;
  }
}

}  // namespace lockstep::optim
