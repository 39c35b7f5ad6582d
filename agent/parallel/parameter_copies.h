#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/model_design.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// The bf16 copies of a rank's parameters for products, made from parameters that this rank has not
// updated itself: loaded, or received from other ranks. One thread.
class ParameterCopies {
 public:
  struct Options {
    ModelDesign design;
    ParameterArena arena;
    // Memory of the device in the arena's layout; outlives the copies.
    const float* parameters = nullptr;
    kernels::Bf16* copies = nullptr;
    uint64_t rounding_seed = 0;  // as optim::OptimizerOptions
  };
  ParameterCopies(const Options& options, const kernels::OpTable& ops);

  // Issues all copies, with the bits that an optimizer gives them in that step; step 0 is before
  // the first one and rounds to nearest.
  void refresh(kernels::Stream& stream, int64_t step) const;

 private:
  struct Copied {
    const float* parameter = nullptr;
    kernels::Bf16* copy = nullptr;
    int64_t count = 0;
    kernels::ElementIndex index;
  };

  const kernels::OpTable* ops_;
  uint64_t rounding_seed_;
  std::vector<Copied> copied_;
};

}  // namespace lockstep::parallel
