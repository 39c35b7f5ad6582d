#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops/parameter_update.h"

namespace lockstep::kernels {

// Computes, for every element with the linear term z in states[0] and the sum n of squares in
// states[1], both zero before the first step:
// g = gradient * gradient_scale; z += g - (sqrt(n + g^2) - sqrt(n)) / lr * parameter; n += g^2;
// parameter = |z| <= l1 ? 0 : (sign(z) l1 - z) / ((beta + sqrt(n)) / lr + l2),
// where l2 is the tensor's weight_decay, and lr the paper's alpha. So a new parameter follows from
// the states alone; a parameter that is not zero before the first step is forgotten in it.
// Source: McMahan et al., "Ad click prediction: a view from the trenches", KDD'13, algorithm 1.
// parameter_update.h has the scale and the copies.
struct Ftrl {
  std::span<const UpdatedTensor> tensors = {};
  float learning_rate = 0.0f;  // above 0
  float beta = 1.0f;
  float l1 = 0.0f;
  float gradient_scale = 1.0f;
  const float* device_scale = nullptr;  // in device memory; or null
  int64_t step = 1;                     // the first step is 1
  uint64_t rounding_seed = 0;           // 0: round to nearest
  int average_state = -1;               // index of the state; -1: none
  float average_rate = 0.0f;
};

}  // namespace lockstep::kernels
