#pragma once

#include "kernels/device/cuda/intrinsics.cuh"
#include "kernels/device/launch_shape.h"

// Reductions in an order that the number of threads alone fixes: the same bits every time.
namespace lockstep::cuda {

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
// A NaN on one side is lost, as in fmaxf.
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Over the lanes of a warp, in pairs; all lanes get the result. `combine` is commutative.
template <class T, class Combine>
__device__ __forceinline__ T reduce_warp(T value, Combine combine) {
#pragma unroll
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    value = combine(value, shuffle_xor(value, mask));
  }
  return value;
}

// The sum of the lanes before; 0 for the first one.
__device__ __forceinline__ int32_t add_lanes_before(int32_t value) {
  int32_t sum = value;
#pragma unroll
  for (int distance = 1; distance < kWarpThreads; distance *= 2) {
    const int32_t before = shuffle_up(sum, distance);
    if (lane_index() >= distance) sum += before;
  }
  return sum - value;
}

// Over the threads of a block; all threads get the result. Shared memory for one T a warp, which
// may be used again afterwards.
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

// Of the warps' sums for a strip of 32 * N columns, whose lanes have N neighbouring ones each:
// body(sum, column in the strip, total) for all of them, the warps added in their order. Shared
// memory for warps * kSums * 32 * N floats.
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

}  // namespace lockstep::cuda
