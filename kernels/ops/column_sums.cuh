#pragma once

#include "kernels/device/cuda/launch.cuh"
#include "kernels/ops/geometry.h"

// The second pass of sums over rows: adds up the partial sums of the first pass.
namespace lockstep::kernels::cuda {

struct ColumnParts {
  const float* sums;  // [columns] for each part
  int64_t count;
  int64_t stride;  // elements from one part to the next
};

// to[column] += the partial sums, in order.
static __global__ void __launch_bounds__(kElementThreads)
    add_parts(ColumnParts parts, float* to, int64_t columns) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int64_t part = 0; part < parts.count; ++part)
    sum += parts.sums[part * parts.stride + column];
  to[column] += sum;
}

inline void launch_add_parts(Stream& stream, const ColumnParts& parts, float* to, int64_t columns) {
  launch(stream, elements_shape("add_parts", columns, 1), add_parts, parts, to, columns);
}

}  // namespace lockstep::kernels::cuda
