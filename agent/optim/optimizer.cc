#include "agent/optim/optimizer.h"

#include <string>

namespace lockstep::optim {

Result<OptimizerKind> parse_optimizer(std::string_view name) {
  if (name == "adamw") return OptimizerKind::kAdamW;
  if (name == "sgd") return OptimizerKind::kSgd;
  if (name == "adagrad") return OptimizerKind::kAdagrad;
  return invalid("[optimizer] expected adamw, sgd or adagrad, got \"" + std::string(name) + "\"",
                 Blame::kConfig);
}

std::span<const StateKind> state_kinds(const OptimizerOptions& options) {
  static constexpr StateKind kAdamW[] = {{"exp_avg", "first moments"},
                                         {"exp_avg_sq", "second moments"}};
  static constexpr StateKind kSgd[] = {{"momentum_buffer", "momentum"}};
  static constexpr StateKind kAdagrad[] = {{"sum", "sums of squares"}};
  switch (options.kind) {
    case OptimizerKind::kAdamW:
      return kAdamW;
    case OptimizerKind::kSgd:
      return options.momentum > 0 ? std::span<const StateKind>(kSgd) : std::span<const StateKind>();
    case OptimizerKind::kAdagrad:
      return kAdagrad;
  }
  return {};
}

Status Optimizer::take_states(const OptimizerArenas& arenas, size_t bytes, kernels::Device device) {
  for (const StateKind& kind : state_kinds(options_)) {
    const size_t i = states_.size();
    float* values = arenas.states[i];
    if (values == nullptr) {
      TRY_ASSIGN(owned_[i], kernels::Buffer::allocate(device, bytes, kind.meaning));
      values = owned_[i].f32();
    }
    states_.push_back({kind.name, values});
  }
  return {};
}

Result<Optimizer> Optimizer::create(const ModelDesign& design, const ParameterArena& arena,
                                    const OptimizerArenas& arenas, const OptimizerOptions& options,
                                    kernels::Device device, const kernels::OpTable& ops) {
  Optimizer optimizer;
  optimizer.ops_ = &ops;
  optimizer.options_ = options;
  TRY(optimizer.take_states(arenas, static_cast<size_t>(arena.count) * sizeof(float), device));
  const std::vector<Parameter> table = parameter_table(design);
  const std::vector<std::vector<IndexedBlock>> blocks = indexed_blocks(design, arena);
  for (size_t i = 0; i < arena.entries.size(); ++i) {
    const ArenaEntry& entry = arena.entries[i];
    const bool decays = table[static_cast<size_t>(entry.id)].weight_decay;
    for (const IndexedBlock& block : blocks[i]) {
      const int64_t at = entry.offset + block.local;
      kernels::UpdatedTensor tensor{
          .parameter = arenas.parameters + at,
          .gradient = arenas.gradients + at,
          .copy = arenas.copies == nullptr ? kernels::View() : kernels::View(arenas.copies + at),
          .count = block.count,
          .weight_decay = decays ? static_cast<float>(options.weight_decay) : 0.0f,
          .index = {.first = block.first, .columns = block.columns, .stride = block.stride}};
      for (size_t k = 0; k < optimizer.states_.size(); ++k) {
        tensor.states[k] = optimizer.states_[k].values + at;
      }
      optimizer.tensors_.push_back(tensor);
    }
  }
  return optimizer;
}

// Returns what the ops' arguments have in common.
template <class Args>
Args Optimizer::arguments(const OptimizerStep& step) const {
  return {.tensors = tensors_,
          .learning_rate = static_cast<float>(step.learning_rate),
          .gradient_scale = step.gradient_scale,
          .device_scale = step.device_scale,
          .step = step.step,
          .rounding_seed = options_.rounding_seed};
}

void Optimizer::step(kernels::Stream& stream, const OptimizerStep& step) {
  switch (options_.kind) {
    case OptimizerKind::kAdamW: {
      auto args = arguments<kernels::AdamW>(step);
      args.beta1 = static_cast<float>(options_.beta1);
      args.beta2 = static_cast<float>(options_.beta2);
      args.epsilon = static_cast<float>(options_.epsilon);
      return ops_->adamw(stream, args);
    }
    case OptimizerKind::kSgd: {
      auto args = arguments<kernels::Sgd>(step);
      args.momentum = static_cast<float>(options_.momentum);
      args.nesterov = options_.nesterov;
      return ops_->sgd(stream, args);
    }
    case OptimizerKind::kAdagrad: {
      auto args = arguments<kernels::Adagrad>(step);
      args.epsilon = static_cast<float>(options_.epsilon);
      return ops_->adagrad(stream, args);
    }
  }
}

void Optimizer::refresh_copies(kernels::Stream& stream, int64_t step) {
  for (const kernels::UpdatedTensor& tensor : tensors_) {
    if (!tensor.copy) continue;
    ops_->cast(stream, {.x = tensor.parameter,
                        .out = tensor.copy,
                        .count = tensor.count,
                        .rounding_seed = step > 0 ? options_.rounding_seed : 0,
                        .step = step,
                        .index = tensor.index});
  }
}

}  // namespace lockstep::optim
