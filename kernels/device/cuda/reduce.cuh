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

}  // namespace lockstep::cuda
