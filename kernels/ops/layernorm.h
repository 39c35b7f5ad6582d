#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// y = (h - mean(h)) * rstd(h) * weight + bias for each row. h = x, or with a residual h = residual
// + x, which is stored in residual_out. R rows (B*T) of width C.
struct LayerNormForward {
  ConstView x = {};         // [R,C]
  ConstView residual = {};  // [R,C] or null
  View residual_out = {};   // [R,C], given if and only if residual is; may be x or residual
                            // (in-place)
  ConstView weight = {};    // [C]
  ConstView bias = {};      // [C]
  View y = {};              // [R,C]
  float* mean = nullptr;    // [R], for backward; null: not stored
  float* rstd = nullptr;    // [R]
  int64_t rows = 0;
  int64_t width = 0;
  float epsilon = 1e-5f;
};

// dx = dresidual + (gradient of the norm at h), which is the gradient of both x and residual. Adds
// to dweight and dbias, in an order that does not depend on the number of threads.
struct LayerNormBackward {
  ConstView dy = {};            // [R,C]
  ConstView h = {};             // [R,C]: x, or residual_out of the fused form
  ConstView weight = {};        // [C]
  const float* mean = nullptr;  // [R]
  const float* rstd = nullptr;  // [R]
  ConstView dresidual = {};     // [R,C]: the gradient that reaches h on other paths; or null
  View dx = {};                 // [R,C]; may be dy or dresidual (in-place)
  View dweight = {};            // [C]
  View dbias = {};              // [C]
  int64_t rows = 0;
  int64_t width = 0;
  Workspace workspace = {};  // layernorm_backward_workspace(width, device type)
};

// Sums over rows are computed in at most this many parts, for any number of threads. On GPUs: four
// blocks for each multiprocessor of an H100.
constexpr int layernorm_backward_parts(DeviceType device) {
  return device == DeviceType::kCpu ? 16 : 4 * 132;
}

constexpr size_t layernorm_backward_workspace(int64_t width, DeviceType device) {
  return static_cast<size_t>(layernorm_backward_parts(device) * 2 * width) * sizeof(float);
}

}  // namespace lockstep::kernels
