#include "agent/optim/clip.h"

namespace lockstep::optim {

GradientNorm GradientNorm::create(const ModelDesign& design, const ParameterArena& arena,
                                  const OptimizerArenas& arrays, const kernels::OpTable& ops) {
  GradientNorm norm;
  norm.ops_ = &ops;
  const std::vector<ShardSlice> whole{{.count = arena.count}};
  const std::vector<ShardSlice>& slices = arrays.slices.empty() ? whole : arrays.slices;
  const bool in_arena = arrays.gradients_layout == ArrayLayout::kArena;
  const auto add = [&](int64_t begin, int64_t count) {
    for (const ShardSlice& slice : offsets_within(slices, begin, begin + count)) {
      const float* values = arrays.gradients + (in_arena ? slice.offset : slice.local);
      norm.counted_.push_back({values, slice.count});
    }
  };
  const std::vector<Parameter> table = parameter_table(design);
  for (const ArenaEntry& entry : arena.entries) {
    const Parameter& parameter = table[static_cast<size_t>(entry.id)];
    const bool is_repeated = parameter.shard_axis < 0 && arena.shard.index > 0;
    if (!entry.counts_in_norm || is_repeated) continue;
    if (!parameter.of_vocabulary) {
      add(entry.offset, entry.count);
      continue;
    }
    for (const ShardRun& run : shard_runs(parameter, entry, arena.shard)) {
      add(entry.offset + run.local, run.count);
    }
  }
  return norm;
}

void GradientNorm::add_squares(kernels::Stream& stream, kernels::SquareSum* sum) const {
  ops_->squared_norm(stream, {.tensors = counted_, .sum = sum});
}

}  // namespace lockstep::optim
