#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device/device.h"

namespace lockstep {

struct Fill {
  View out = {};
  int64_t count = 0;
  float value = 0.0f;
};

// out = x, dtypes alike or not: fp32 -> bf16 rounds to nearest even, a NaN stays a (quiet) NaN.
// With a rounding_seed fp32 -> bf16 rounds stochastically instead, to the bits of AdamW's copies
// (adamw.h) after that step of elements that have the indices from `first` on.
struct Cast {
  ConstView x = {};
  View out = {};
  int64_t count = 0;
  uint64_t rounding_seed = 0;  // 0: to nearest
  int64_t step = 0;
  int64_t first = 0;
};

// out = x * factor; out may be x itself.
struct Scale {
  ConstView x = {};
  View out = {};
  int64_t count = 0;
  float factor = 1.0f;
};

// out = a + b; out may be a or b themselves.
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

// *sum = the sum of the squares of all elements, accumulated in double, in an order that depends on
// the tensors alone and not on threads.
struct SquaredNorm {
  std::span<const FlatTensor> tensors = {};
  double* sum = nullptr;     // on the device
  Workspace workspace = {};  // kSquaredNormWorkspace bytes
};
inline constexpr size_t kSquaredNormWorkspace = 256 * sizeof(double);

}  // namespace lockstep
