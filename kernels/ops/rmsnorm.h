#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// y = h * rrms(h) * weight for each row, with rrms(h) = 1 / sqrt(mean(h^2) + epsilon). h = x, or
// with a residual h = residual + x, which is stored in residual_out. R rows (B*T) of width C.
// Source: Zhang and Sennrich, "Root mean square layer normalization", 2019.
struct RmsNormForward {
  ConstView x = {};         // [R,C]
  ConstView residual = {};  // [R,C] or null
  View residual_out = {};   // [R,C], given if and only if residual is; may be x or residual
                            // (in-place)
  ConstView weight = {};    // [C]
  View y = {};              // [R,C]; may be x
  float* rrms = nullptr;    // [R], for backward; null: not stored
  int64_t rows = 0;
  int64_t width = 0;
  float epsilon = 1e-5f;
};

// dx = dresidual + (gradient of the norm at h), which is the gradient of both x and residual. Adds
// to dweight, in an order that does not depend on the number of threads.
struct RmsNormBackward {
  ConstView dy = {};            // [R,C]
  ConstView h = {};             // [R,C]: x, or residual_out of the fused form
  ConstView weight = {};        // [C]
  const float* rrms = nullptr;  // [R]
  ConstView dresidual = {};     // [R,C]: the gradient that reaches h on other paths; or null
  View dx = {};                 // [R,C]; may be dy or dresidual (in-place)
  View dweight = {};            // [C]
  int64_t rows = 0;
  int64_t width = 0;
  Workspace workspace = {};  // rmsnorm_backward_workspace(width, device type)
};

// Sums over rows are computed in at most this many parts, for any number of threads. On GPUs: four
// blocks for each multiprocessor of an H100.
constexpr int rmsnorm_backward_parts(DeviceType device) {
  return device == DeviceType::kCpu ? 16 : 4 * 132;
}

constexpr size_t rmsnorm_backward_workspace(int64_t width, DeviceType device) {
  return static_cast<size_t>(rmsnorm_backward_parts(device) * width) * sizeof(float);
}

}  // namespace lockstep::kernels
