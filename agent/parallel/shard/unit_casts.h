#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/layout/model_design.h"
#include "common/layout/shard_layout.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// Casts between fp32 parameters and their bf16 form, of whole units wherever these are.
class UnitCasts {
 public:
  UnitCasts(const ModelDesign& design, const ShardLayout& layout, uint64_t rounding_seed,
            const kernels::OpTable& ops);

  // Issues the bf16 copies for products of a unit, with the bits that an optimizer gives them in
  // that step (ParameterCopies). Both begin with the unit.
  void make_copies(kernels::Stream& stream, size_t unit, const float* from, kernels::Bf16* to,
                   int64_t step) const;

 private:
  struct Cast {
    int64_t at = 0;  // from the beginning of the unit
    int64_t count = 0;
    kernels::ElementIndex index;
  };
  std::vector<std::vector<Cast>> casts_;  // by unit
  uint64_t rounding_seed_;
  const kernels::OpTable* ops_;
};

}  // namespace lockstep::parallel
