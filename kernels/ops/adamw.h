#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops/parameter_update.h"

namespace lockstep::kernels {

// Computes, for every element with the first moment m in states[0] and the second v in states[1]:
// g = gradient * gradient_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
// parameter -= lr * (m/(1-b1^step) / (sqrt(v/(1-b2^step)) + epsilon) + weight_decay * parameter).
// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019; epsilon is placed
// as in PyTorch's AdamW. parameter_update.h has the scale, the copies and their rounding.
struct AdamW {
  std::span<const UpdatedTensor> tensors = {};
  float learning_rate = 0.0f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float gradient_scale = 1.0f;          // for clipping and averaging
  const float* device_scale = nullptr;  // in device memory, for example ClipScale::scale; or null
  int64_t step = 1;                     // the first step is 1
  uint64_t rounding_seed = 0;           // 0: round to nearest
  int average_state = -1;               // index of the state; -1: none
  float average_rate = 0.0f;
};

}  // namespace lockstep::kernels
