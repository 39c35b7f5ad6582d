#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops/parameter_update.h"

namespace lockstep::kernels {

// Computes, for every element with the sum s of squares in states[0], zero before the first step:
// g = gradient * gradient_scale + weight_decay * parameter; s += g^2;
// parameter -= lr * g / (sqrt(s) + epsilon).
// As PyTorch's Adagrad without a decay of the learning rate. Source: Duchi, Hazan and Singer,
// "Adaptive subgradient methods for online learning and stochastic optimization", 2011.
// parameter_update.h has the scale and the copies.
struct Adagrad {
  std::span<const UpdatedTensor> tensors = {};
  float learning_rate = 0.0f;
  float epsilon = 1e-10f;
  float gradient_scale = 1.0f;
  const float* device_scale = nullptr;  // in device memory; or null
  int64_t step = 1;                     // the first step is 1
  uint64_t rounding_seed = 0;           // 0: round to nearest
  int average_state = -1;               // index of the state; -1: none
  float average_rate = 0.0f;
};

}  // namespace lockstep::kernels
