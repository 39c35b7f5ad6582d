#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/device.h"

namespace lockstep {

struct AdamWTensor {
  float* parameter = nullptr;
  const float* gradient = nullptr;
  float* m = nullptr;  // first moment
  float* v = nullptr;  // second moment
  View copy = {};      // the new parameter again, in its dtype (bf16 weights for matmul); or null
  int64_t count = 0;
  float weight_decay = 0.0f;
};

// g = gradient * gradient_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
// parameter -= lr * (m/(1-b1^step) / (sqrt(v/(1-b2^step)) + epsilon) + weight_decay * parameter).
// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019; epsilon where
// PyTorch's AdamW has it.
//
// With device_scale, gradients are multiplied with gradient_scale * *device_scale, and where that
// is not finite nothing is written at all.
//
// Copies in bf16 are rounded to nearest even or, with a rounding_seed, stochastically (rounding.h)
// with key rounding_key(rounding_seed, step) and indices counted through all tensors: the same bits
// for the same parameter on every device. Source: Gupta et al., "Deep learning with limited
// numerical precision", 2015.
struct AdamW {
  std::span<const AdamWTensor> tensors = {};
  float learning_rate = 0.0f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float gradient_scale = 1.0f;          // clipping, averaging
  const float* device_scale = nullptr;  // on the device: ClipScale's; or null
  int64_t step = 1;                     // counted from 1
  uint64_t rounding_seed = 0;           // 0: to nearest
};

}  // namespace lockstep
