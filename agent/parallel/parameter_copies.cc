#include "agent/parallel/parameter_copies.h"

namespace lockstep::parallel {

ParameterCopies::ParameterCopies(const Options& options, const kernels::OpTable& ops)
    : ops_(&ops), rounding_seed_(options.rounding_seed) {
  const std::vector<std::vector<IndexedBlock>> blocks =
      indexed_blocks(options.design, options.arena);
  for (size_t i = 0; i < options.arena.entries.size(); ++i) {
    for (const IndexedBlock& block : blocks[i]) {
      const int64_t at = options.arena.entries[i].offset + block.local;
      copied_.push_back(
          {.parameter = options.parameters + at,
           .copy = options.copies + at,
           .count = block.count,
           .index = {.first = block.first, .columns = block.columns, .stride = block.stride}});
    }
  }
}

void ParameterCopies::refresh(kernels::Stream& stream, int64_t step) const {
  for (const Copied& copied : copied_) {
    ops_->cast(stream, {.x = copied.parameter,
                        .out = copied.copy,
                        .count = copied.count,
                        .rounding_seed = step > 0 ? rounding_seed_ : 0,
                        .step = step,
                        .index = copied.index});
  }
}

}  // namespace lockstep::parallel
