#pragma once

#include <cstdint>

#include "kernels/device/cuda/intrinsics.cuh"
#include "kernels/device/dtype.h"

// Reads and writes tensor elements as floats, several at a time.
namespace lockstep::kernels::cuda {

// N consecutive elements of type T. N is 1, or the elements fill 8, 16 or 32 bytes.
template <class T, int N>
struct Pack {
  using Value = T;
  static constexpr int kCount = N;
};

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(Bf16 value) {
  return float_of_bits(static_cast<uint32_t>(value.bits) << 16);
}

__device__ __forceinline__ void split_pair(uint32_t pair, float& low, float& high) {
  low = float_of_bits(pair << 16);
  high = float_of_bits(pair & 0xFFFF0000u);
}

// A pack of 16 bytes as loaded, to be unpacked later: a load that is not used yet does not hold up
// the thread. `like` says the type.
__device__ __forceinline__ void unpack_values(float (&values)[4], const Words4& pack,
                                              const float* /*like*/) {
  for (int j = 0; j < 4; ++j) values[j] = float_of_bits(pack.word[j]);
}
__device__ __forceinline__ void unpack_values(float (&values)[8], const Words4& pack,
                                              const Bf16* /*like*/) {
  for (int j = 0; j < 4; ++j) split_pair(pack.word[j], values[2 * j], values[2 * j + 1]);
}

// The address must be a multiple of the pack's size, or of 16.
template <int N>
__device__ __forceinline__ void load_values(float (&values)[N], const float* from) {
  if constexpr (N == 1) {
    values[0] = from[0];
  } else {
    static_assert(N % 4 == 0);
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const Words4 words = load_16_bytes(from + i);
      for (int j = 0; j < 4; ++j) values[i + j] = float_of_bits(words.word[j]);
    }
  }
}

template <int N>
__device__ __forceinline__ void load_values(float (&values)[N], const Bf16* from) {
  static_assert(N == 1 || N == 4 || N == 8);
  if constexpr (N == 1) {
    values[0] = to_float(from[0]);
  } else if constexpr (N == 4) {
    const Words2 words = load_8_bytes(from);
    for (int j = 0; j < 2; ++j) split_pair(words.word[j], values[2 * j], values[2 * j + 1]);
  } else {
    unpack_values(values, load_16_bytes(from), from);
  }
}

template <int N>
__device__ __forceinline__ void store_values(float* to, const float (&values)[N]) {
  if constexpr (N == 1) {
    to[0] = values[0];
  } else {
    static_assert(N % 4 == 0);
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      Words4 words;
      for (int j = 0; j < 4; ++j) words.word[j] = bits_of_float(values[i + j]);
      store_16_bytes(to + i, words);
    }
  }
}

// Rounds to nearest even.
template <int N>
__device__ __forceinline__ void store_values(Bf16* to, const float (&values)[N]) {
  static_assert(N == 1 || N == 4 || N == 8);
  if constexpr (N == 1) {
    to[0] = to_bf16(values[0]);
  } else if constexpr (N == 4) {
    Words2 words;
    for (int j = 0; j < 2; ++j) words.word[j] = to_bf16_pair(values[2 * j], values[2 * j + 1]);
    store_8_bytes(to, words);
  } else {
    Words4 words;
    for (int j = 0; j < 4; ++j) words.word[j] = to_bf16_pair(values[2 * j], values[2 * j + 1]);
    store_16_bytes(to, words);
  }
}

// Returns the value after rounding to the type T that it is stored as.
__device__ __forceinline__ float as_stored(float value, const float*) {
  return value;
}
__device__ __forceinline__ float as_stored(float value, const Bf16*) {
  return to_float(to_bf16(value));
}

inline constexpr float kLog2E = 1.4426950408889634f;

// Computes e^x as precisely as results of type T need: fast_exp() is enough for bf16.
template <class T>
__device__ __forceinline__ float exp_for(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return expf(x);
  } else {
    return fast_exp(x);
  }
}

// Calls body(Pack<T, n>, first) for this thread's elements, in a one-dimensional grid with N
// elements per thread. n is N, or 1 for each of the last elements if fewer than N remain.
template <class T, int N, class Body>
__device__ __forceinline__ void for_own_elements(int64_t count, Body body) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (first + N <= count) {
    body(Pack<T, N>{}, first);
  } else {
    for (int64_t i = first; i < count; ++i) body(Pack<T, 1>{}, i);
  }
}

}  // namespace lockstep::kernels::cuda
