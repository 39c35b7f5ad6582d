#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/model_design.h"
#include "common/layout/shard_layout.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// Makes the bf16 copies for products from parameters that this rank has not updated itself: loaded,
// or received from other ranks. An optimizer makes those of what it updates.
class ParameterCasts {
 public:
  // `rounding_seed`: as optim::OptimizerOptions.
  ParameterCasts(const ModelDesign& design, const ShardLayout& layout, uint64_t rounding_seed,
                 const kernels::OpTable& ops);

  // Issues the copies of a unit, with the bits that an optimizer gives them in that step; step 0 is
  // before the first one and rounds to nearest. Both begin with the unit.
  void make_copies(kernels::Stream& stream, size_t unit, const float* from, kernels::Bf16* to,
                   int64_t step) const;
  // The same for all units. Both have the layout of the arena.
  void make_all(kernels::Stream& stream, const float* from, kernels::Bf16* to, int64_t step) const;

 private:
  struct Cast {
    int64_t at = 0;  // from the beginning of the unit
    int64_t count = 0;
    kernels::ElementIndex index;
  };
  struct Unit {
    int64_t offset = 0;  // in the arena
    std::vector<Cast> casts;
  };
  std::vector<Unit> units_;
  uint64_t rounding_seed_;
  const kernels::OpTable* ops_;
};

}  // namespace lockstep::parallel
