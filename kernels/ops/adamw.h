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
struct AdamW {
  std::span<const AdamWTensor> tensors = {};
  float learning_rate = 0.0f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float gradient_scale = 1.0f;  // clipping, averaging
  int64_t step = 1;             // counted from 1
};

}  // namespace lockstep
