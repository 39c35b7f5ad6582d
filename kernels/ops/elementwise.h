#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops/parameter_update.h"

namespace lockstep::kernels {

struct Fill {
  View out = {};
  int64_t count = 0;
  float value = 0.0f;
};

// out = x, between any two dtypes. fp32 -> bf16 rounds to nearest even; a NaN stays a (quiet) NaN.
// With a rounding_seed it rounds stochastically instead, to the same bits as an optimizer's copies
// (parameter_update.h) after that step.
struct Cast {
  ConstView x = {};
  View out = {};
  int64_t count = 0;
  uint64_t rounding_seed = 0;  // 0: round to nearest
  int64_t step = 0;
  ElementIndex index = {};
};

// out = x * (factor * *device_factor); out may be x (in-place).
struct Scale {
  ConstView x = {};
  View out = {};
  int64_t count = 0;
  float factor = 1.0f;
  const float* device_factor = nullptr;  // in device memory; null: 1
};

// out = a + b; out may be a or b (in-place).
struct Add {
  ConstView a = {};
  ConstView b = {};
  View out = {};
  int64_t count = 0;
};

// Copies a block of a matrix: to[r * to_stride + i] = from[r * from_stride + i], i below width.
struct CopyRows {
  const float* from = nullptr;
  float* to = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t from_stride = 0;
  int64_t to_stride = 0;
};

}  // namespace lockstep::kernels
