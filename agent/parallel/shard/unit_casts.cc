#include "agent/parallel/shard/unit_casts.h"

namespace lockstep::parallel {

UnitCasts::UnitCasts(const ModelDesign& design, const ShardLayout& layout, uint64_t rounding_seed,
                     const kernels::OpTable& ops)
    : casts_(layout.units().size()), rounding_seed_(rounding_seed), ops_(&ops) {
  const ParameterArena& arena = layout.arena();
  const std::vector<std::vector<IndexedBlock>> blocks = indexed_blocks(design, arena);
  for (size_t i = 0; i < arena.entries.size(); ++i) {
    const size_t unit = layout.unit_of(arena.entries[i].id);
    for (const IndexedBlock& block : blocks[i]) {
      casts_[unit].push_back(
          {.at = arena.entries[i].offset + block.local - layout.units()[unit].offset,
           .count = block.count,
           .index = {.first = block.first, .columns = block.columns, .stride = block.stride}});
    }
  }
}

void UnitCasts::make_copies(kernels::Stream& stream, size_t unit, const float* from,
                            kernels::Bf16* to, int64_t step) const {
  for (const Cast& cast : casts_[unit]) {
    ops_->cast(stream, {.x = kernels::ConstView(from + cast.at),
                        .out = kernels::View(to + cast.at),
                        .count = cast.count,
                        .rounding_seed = step > 0 ? rounding_seed_ : 0,
                        .step = step,
                        .index = cast.index});
  }
}

}  // namespace lockstep::parallel
