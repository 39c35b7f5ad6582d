#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops/parameter_update.h"

namespace lockstep::kernels {

// Computes, for every element:
// g = gradient * gradient_scale + weight_decay * parameter; b = momentum b + g;
// parameter -= lr * (nesterov ? g + momentum b : b).
// The buffer b is states[0], zero before the first step. Without momentum there is none, and b = g.
// As PyTorch's SGD with dampening 0. Source: Sutskever et al., "On the importance of initialization
// and momentum in deep learning", 2013. parameter_update.h has the scale and the copies.
struct Sgd {
  std::span<const UpdatedTensor> tensors = {};
  float learning_rate = 0.0f;
  float momentum = 0.0f;
  bool nesterov = false;
  float gradient_scale = 1.0f;
  const float* device_scale = nullptr;  // in device memory; or null
  int64_t step = 1;                     // the first step is 1
  uint64_t rounding_seed = 0;           // 0: round to nearest
  int average_state = -1;               // index of the state; -1: none
  float average_rate = 0.0f;
};

}  // namespace lockstep::kernels
