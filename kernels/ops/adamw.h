#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/device.h"

namespace lockstep::kernels {

struct AdamWTensor {
  float* parameter = nullptr;
  const float* gradient = nullptr;
  float* m = nullptr;  // first moment
  float* v = nullptr;  // second moment
  View copy = {};  // copy of the new parameter in this view's dtype (bf16 weights for matmul); or
                   // null
  int64_t count = 0;
  float weight_decay = 0.0f;
};

// Computes, for every element:
// g = gradient * gradient_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
// parameter -= lr * (m/(1-b1^step) / (sqrt(v/(1-b2^step)) + epsilon) + weight_decay * parameter).
// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019; epsilon is placed
// as in PyTorch's AdamW.
//
// With device_scale, multiplies gradients by gradient_scale * *device_scale. If that product is not
// finite, the op writes nothing.
//
// Rounds bf16 copies to nearest even or, with a rounding_seed, stochastically (rounding.h). The key
// is rounding_key(rounding_seed, step), and element indices run through all tensors, so a parameter
// gets the same bits on every device. Source: Gupta et al., "Deep learning with limited numerical
// precision", 2015.
struct AdamW {
  std::span<const AdamWTensor> tensors = {};
  float learning_rate = 0.0f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float gradient_scale = 1.0f;          // for clipping and averaging
  const float* device_scale = nullptr;  // in device memory, for example ClipScale::scale; or null
  int64_t step = 1;                     // the first step is 1
  uint64_t rounding_seed = 0;           // 0: round to nearest
};

}  // namespace lockstep::kernels
