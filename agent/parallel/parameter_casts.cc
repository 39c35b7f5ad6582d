#include "agent/parallel/parameter_casts.h"

namespace lockstep::parallel {

ParameterCasts::ParameterCasts(const ModelDesign& design, const ShardLayout& layout,
                               uint64_t rounding_seed, const kernels::OpTable& ops)
    : rounding_seed_(rounding_seed), ops_(&ops) {
  for (const ShardUnit& unit : layout.units()) units_.push_back({.offset = unit.offset});
  const ParameterArena& arena = layout.arena();
  const std::vector<std::vector<IndexedBlock>> blocks = indexed_blocks(design, arena);
  for (size_t i = 0; i < arena.entries.size(); ++i) {
    Unit& unit = units_[layout.unit_of(arena.entries[i].id)];
    for (const IndexedBlock& block : blocks[i]) {
      unit.casts.push_back(
          {.at = arena.entries[i].offset + block.local - unit.offset,
           .count = block.count,
           .index = {.first = block.first, .columns = block.columns, .stride = block.stride}});
    }
  }
}

void ParameterCasts::make_copies(kernels::Stream& stream, size_t unit, const float* from,
                                 kernels::Bf16* to, int64_t step) const {
  for (const Cast& cast : units_[unit].casts) {
    ops_->cast(stream, {.x = kernels::ConstView(from + cast.at),
                        .out = kernels::View(to + cast.at),
                        .count = cast.count,
                        .rounding_seed = step > 0 ? rounding_seed_ : 0,
                        .step = step,
                        .index = cast.index});
  }
}

void ParameterCasts::make_all(kernels::Stream& stream, const float* from, kernels::Bf16* to,
                              int64_t step) const {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const int64_t offset = units_[unit].offset;
    make_copies(stream, unit, from + offset, to + offset, step);
  }
}

}  // namespace lockstep::parallel
