#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), GPT-2's approximation.
// Source: Hendrycks and Gimpel, "Gaussian error linear units", 2016.
struct GeluForward {
  ConstView x = {};  // [count]
  View y = {};       // [count]; may be x (in-place)
  int64_t count = 0;
};

// dx = dy * GELU'(x).
struct GeluBackward {
  ConstView x = {};   // [count]
  ConstView dy = {};  // [count]
  View dx = {};       // [count]; may be dy (in-place)
  int64_t count = 0;
};

}  // namespace lockstep::kernels
