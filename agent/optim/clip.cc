#include "agent/optim/clip.h"

namespace lockstep::optim {

GradientNorm GradientNorm::create(const ModelDesign& design, const ParameterArena& arena,
                                  const OptimizerArenas& arrays, const kernels::OpTable& ops) {
  GradientNorm norm;
  norm.ops_ = &ops;
  const std::vector<ShardSlice> slices = updated_slices(arrays, arena);
  const bool in_arena = arrays.gradients_layout == ArrayLayout::kArena;
  const auto add = [&](int64_t begin, int64_t count) {
    if (count == 0) return;
    for (const ShardSlice& slice : offsets_within(slices, begin, begin + count)) {
      const float* values = arrays.gradients + (in_arena ? slice.offset : slice.local);
      norm.counted_.push_back({values, slice.count});
    }
  };
  const std::vector<Parameter> table = parameter_table(design);
  for (const ArenaEntry& entry : arena.entries) {
    const Parameter& parameter = table[static_cast<size_t>(entry.id)];
    if (!entry.counts_in_norm || parameter.is_statistic) continue;
    int64_t begin = 0, end = 0;  // of runs that are adjacent here
    for (const ShardRun& run : owned_runs(parameter, entry, arena.shard)) {
      if (run.local != end) {
        add(entry.offset + begin, end - begin);
        begin = run.local;
      }
      end = run.local + run.count;
    }
    add(entry.offset + begin, end - begin);
  }
  return norm;
}

void GradientNorm::add_squares(kernels::Stream& stream, kernels::SquareSum* sum) const {
  ops_->squared_norm(stream, {.tensors = counted_, .sum = sum});
}

}  // namespace lockstep::optim
