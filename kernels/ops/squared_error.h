#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// losses[r] = sum over c of (outputs[r,c] - values[r,c])^2; with gradient,
// outputs[r,c] <- 2 (outputs[r,c] - values[r,c]) * gradient_scale, in-place. The mean squared error
// is the sum of the losses / (R*C).
struct SquaredError {
  View outputs = {};              // [R,C]: overwritten if gradient, else unchanged
  const float* values = nullptr;  // [R,C]
  float* losses = nullptr;        // [R]
  int64_t rows = 0;
  int64_t columns = 0;
  bool gradient = true;
  float gradient_scale = 1.0f;
};

}  // namespace lockstep::kernels
