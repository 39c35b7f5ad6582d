#pragma once

#include <cstdint>

namespace lockstep::model {

// Dropout in training (kernels/ops/dropout.h). The seed, the place in the model and the number of
// the sample (PassInput::first_sample) decide which values are dropped, so that it does not depend
// on how ranks share the work, and a pass that is recomputed drops the same.
struct DropoutOptions {
  double probability = 0;  // in [0, 1); 0: none
  uint64_t seed = 0;
};

}  // namespace lockstep::model
