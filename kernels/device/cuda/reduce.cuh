#pragma once

#include "kernels/device/cuda/intrinsics.cuh"
#include "kernels/device/launch_shape.h"

// Reductions whose order depends only on the number of threads, so results are bitwise
// reproducible.
namespace lockstep::kernels::cuda {

__device__ __forceinline__ int lane_index() {
  return static_cast<int>(threadIdx.x) % kWarpThreads;
}
__device__ __forceinline__ int warp_index() {
  return static_cast<int>(threadIdx.x) / kWarpThreads;
}
__device__ __forceinline__ int warp_count() {
  return static_cast<int>(blockDim.x) / kWarpThreads;
}

struct Plus {
  template <class T>
  __device__ T operator()(const T& a, const T& b) const {
    return a + b;
  }
};
// Ignores a NaN on one side, as fmaxf does.
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Reduces over the lanes of a warp, in pairs; all lanes get the result. `combine` must be
// commutative.
template <class T, class Combine>
__device__ __forceinline__ T reduce_warp(T value, Combine combine) {
#pragma unroll
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    value = combine(value, shuffle_xor(value, mask));
  }
  return value;
}

// Returns the sum of the lower lanes' values; 0 for the first lane.
__device__ __forceinline__ int32_t add_lanes_before(int32_t value) {
  int32_t sum = value;
#pragma unroll
  for (int distance = 1; distance < kWarpThreads; distance *= 2) {
    const int32_t before = shuffle_up(sum, distance);
    if (lane_index() >= distance) sum += before;
  }
  return sum - value;
}

// Reduces over the threads of a block; all threads get the result. `shared` holds one T per warp
// and may be reused afterwards.
template <class T, class Combine>
__device__ __forceinline__ T reduce_block(T value, Combine combine, T* shared) {
  value = reduce_warp(value, combine);
  if (lane_index() == 0) shared[warp_index()] = value;
  sync_block();
  T result = shared[0];
  for (int warp = 1; warp < warp_count(); ++warp) result = combine(result, shared[warp]);
  sync_block();
  return result;
}

// Adds up the warps' partial sums for a strip of 32 * N columns, of which each lane has N adjacent
// ones. Calls body(sum, column in the strip, total) for every column, spread over the block's
// threads. Adds the warps in index order. `shared` holds warps * kSums * 32 * N floats.
template <int kSums, int N, class Body>
__device__ __forceinline__ void join_warps(const float (&own)[kSums][N], float* shared, Body body) {
  constexpr int kStrip = kWarpThreads * N, kAll = kSums * kStrip;
  float* of_lane = shared + warp_index() * kAll + lane_index() * N;
  for (int sum = 0; sum < kSums; ++sum) {
    for (int i = 0; i < N; ++i) of_lane[sum * kStrip + i] = own[sum][i];
  }
  sync_block();
  for (int i = static_cast<int>(threadIdx.x); i < kAll; i += static_cast<int>(blockDim.x)) {
    float total = 0.0f;
    for (int warp = 0; warp < warp_count(); ++warp) total += shared[warp * kAll + i];
    body(i / kStrip, i % kStrip, total);
  }
}

}  // namespace lockstep::kernels::cuda
