#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device/device.h"

namespace lockstep::kernels {

struct Fill {
  View out = {};
  int64_t count = 0;
  float value = 0.0f;
};

// out = x, between any two dtypes. fp32 -> bf16 rounds to nearest even; a NaN stays a (quiet) NaN.
// With a rounding_seed it rounds stochastically instead, to the same bits as AdamW's copies
// (adamw.h) after that step, for elements with indices from `first` on.
struct Cast {
  ConstView x = {};
  View out = {};
  int64_t count = 0;
  uint64_t rounding_seed = 0;  // 0: round to nearest
  int64_t step = 0;
  int64_t first = 0;
};

// out = x * factor; out may be x (in-place).
struct Scale {
  ConstView x = {};
  View out = {};
  int64_t count = 0;
  float factor = 1.0f;
};

// out = a + b; out may be a or b (in-place).
struct Add {
  ConstView a = {};
  ConstView b = {};
  View out = {};
  int64_t count = 0;
};

struct FlatTensor {
  const float* data = nullptr;
  int64_t count = 0;
};

// *sum = the sum of the squares of all elements, accumulated in double. The order depends only on
// the tensors, not on the number of threads.
struct SquaredNorm {
  std::span<const FlatTensor> tensors = {};
  double* sum = nullptr;     // on the device
  Workspace workspace = {};  // kSquaredNormWorkspace bytes
};
inline constexpr size_t kSquaredNormWorkspace = 256 * sizeof(double);

}  // namespace lockstep::kernels
