#pragma once

#include "kernels/device/cuda/launch.cuh"
#include "kernels/device/cuda/reduce.cuh"
#include "kernels/ops/geometry.h"

// The second pass of sums over rows: adds up the partial sums of the first pass.
namespace lockstep::kernels::cuda {

struct ColumnParts {
  const float* sums;  // for each part: [columns] of each target
  int64_t count;
  int64_t stride;  // elements from one part to the next
};

inline constexpr int kAddPartsTargets = 2;
struct ColumnTargets {
  float* to[kAddPartsTargets];  // [columns] each; null: none
};

// to[column] += the partial sums. Each warp adds up a share of the parts in order, then the warps'
// sums are added in order. Grid: (strip of columns, target).
static __global__ void __launch_bounds__(kColumnThreads)
    add_parts(ColumnParts parts, ColumnTargets targets, int64_t columns) {
  const int64_t column = int64_t{blockIdx.x} * kWarpThreads + lane_index();
  const int64_t begin = parts.count * warp_index() / kColumnWarps;
  const int64_t end = parts.count * (warp_index() + 1) / kColumnWarps;
  const float* from = parts.sums + int64_t{blockIdx.y} * columns + column;
  float sums[1][1] = {};
  if (column < columns) {
#pragma unroll 8
    for (int64_t part = begin; part < end; ++part) sums[0][0] += from[part * parts.stride];
  }
  float* to = targets.to[blockIdx.y];
  join_warps(sums, shared_memory<float>(), [&](int, int i, float total) {
    const int64_t c = int64_t{blockIdx.x} * kWarpThreads + i;
    if (c < columns) to[c] += total;
  });
}

inline void launch_add_parts(Stream& stream, const ColumnParts& parts, const ColumnTargets& targets,
                             int64_t columns) {
  launch(stream, add_parts_shape(columns, targets.to[1] == nullptr ? 1 : kAddPartsTargets),
         add_parts, parts, targets, columns);
}

}  // namespace lockstep::kernels::cuda
