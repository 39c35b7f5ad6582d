#pragma once

#include "kernels/ops/squared_norm.h"

namespace lockstep::kernels {

// *factor = 1 / (sqrt(*squares) + epsilon), rounded once. All pointers are in device memory.
struct InverseNorm {
  const SquareSum* squares = nullptr;
  float* factor = nullptr;
  double epsilon = 0.0;
};

}  // namespace lockstep::kernels
