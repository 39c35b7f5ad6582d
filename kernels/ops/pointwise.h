#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// Activation functions whose derivative follows from their value.
// - kRelu: y = max(x, 0); y' = 1 if y > 0, else 0.
// - kTanh: y = tanh(x); y' = 1 - y^2.
enum class Pointwise : uint8_t { kRelu, kTanh };

struct PointwiseForward {
  ConstView x = {};  // [count]
  View y = {};       // [count]; may be x (in-place)
  int64_t count = 0;
  Pointwise function = Pointwise::kRelu;
};

// dx = dy * y'.
struct PointwiseBackward {
  ConstView y = {};   // [count]: the function's values
  ConstView dy = {};  // [count]
  View dx = {};       // [count]; may be dy (in-place)
  int64_t count = 0;
  Pointwise function = Pointwise::kRelu;
};

}  // namespace lockstep::kernels
