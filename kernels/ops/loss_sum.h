#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// *sum += the sum of the losses, accumulated in double, in an order that depends only on their
// count.
struct LossSum {
  const float* losses = nullptr;  // [count]
  int64_t count = 0;
  double* sum = nullptr;  // on the device
};

}  // namespace lockstep::kernels
