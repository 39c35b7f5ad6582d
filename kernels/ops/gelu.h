#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// Source: Hendrycks and Gimpel, "Gaussian error linear units", 2016.
enum class GeluForm : uint8_t {
  kTanh,  // x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), GPT-2's approximation
  kErf,   // x/2 * (1 + erf(x / sqrt(2))), BERT's
};

// y = GELU(x).
struct GeluForward {
  ConstView x = {};  // [count]
  View y = {};       // [count]; may be x (in-place)
  int64_t count = 0;
  GeluForm form = GeluForm::kTanh;
};

// dx = dy * GELU'(x).
struct GeluBackward {
  ConstView x = {};   // [count]
  ConstView dy = {};  // [count]
  View dx = {};       // [count]; may be dy (in-place)
  int64_t count = 0;
  GeluForm form = GeluForm::kTanh;
};

}  // namespace lockstep::kernels
