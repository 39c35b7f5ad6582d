#include "agent/optim/clip.h"

namespace lockstep::optim {

GradientNorm GradientNorm::create(const ModelDesign& design, const ParameterArena& arena,
                                  const float* gradients, const kernels::OpTable& ops) {
  GradientNorm norm;
  norm.ops_ = &ops;
  const std::vector<Parameter> table = parameter_table(design);
  for (const ArenaEntry& entry : arena.entries) {
    const Parameter& parameter = table[static_cast<size_t>(entry.id)];
    const bool is_repeated = parameter.shard_axis < 0 && arena.shard.index > 0;
    if (!entry.counts_in_norm || is_repeated) continue;
    if (!parameter.of_vocabulary) {
      norm.counted_.push_back({gradients + entry.offset, entry.count});
      continue;
    }
    for (const ShardRun& run : shard_runs(parameter, entry, arena.shard)) {
      norm.counted_.push_back({gradients + entry.offset + run.local, run.count});
    }
  }
  return norm;
}

void GradientNorm::add_squares(kernels::Stream& stream, kernels::SquareSum* sum) const {
  ops_->squared_norm(stream, {.tensors = counted_, .sum = sum});
}

}  // namespace lockstep::optim
