// The emulated version of kernels/device/cuda/intrinsics.cuh, which documents the functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "kernels/device/dtype.h"
#include "tests/support/emulated_cuda/emulator.h"

// CUDA's keywords. A __grid_constant__ parameter (written after its type) is one object for all
// threads.
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__ &

namespace lockstep::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// The place of the call in a kernel.
using Site = std::source_location;

inline void sync_block(Site at = Site::current()) {
  emulated_cuda::wait_for_block(at);
}

void sync_warp(Site at = Site::current());

// Gives each lane the value of lane `from`, or its own value if that lane does not exist.
struct ShuffleRequest {
  const void* value;
  size_t bytes;
  int from;
};
void shuffle_bytes(const ShuffleRequest& request, void* out, Site at);

template <class T>
T shuffle_from(T value, int from, Site at) {
  static_assert(std::is_trivially_copyable_v<T>);
  T out = value;
  shuffle_bytes({&value, sizeof value, from}, &out, at);
  return out;
}
inline int this_lane() {
  return static_cast<int>(threadIdx.x % kWarpThreads);
}
template <class T>
T shuffle_xor(T value, int mask, Site at = Site::current()) {
  return shuffle_from(value, this_lane() ^ mask, at);
}
template <class T>
T shuffle_up(T value, int distance, Site at = Site::current()) {
  return shuffle_from(value, this_lane() - distance, at);
}
uint32_t ballot(bool predicate, Site at = Site::current());
inline int count_bits(uint32_t bits) {
  return std::popcount(bits);
}

template <class T>
T* shared_memory() {
  return static_cast<T*>(emulated_cuda::shared_memory());
}

struct Words2 {
  uint32_t word[2];
};
struct Words4 {
  uint32_t word[4];
};

inline void expect_aligned(const void* address, size_t bytes, Site at) {
  emulated_cuda::count_access();
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
    emulated_cuda::fault("an access of several bytes that is not aligned to them", at);
  }
}
inline Words4 load_16_bytes(const void* from, Site at = Site::current()) {
  expect_aligned(from, 16, at);
  Words4 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline void store_16_bytes(void* to, const Words4& value, Site at = Site::current()) {
  expect_aligned(to, 16, at);
  std::memcpy(to, &value, sizeof value);
}
inline Words2 load_8_bytes(const void* from, Site at = Site::current()) {
  expect_aligned(from, 8, at);
  Words2 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline void store_8_bytes(void* to, const Words2& value, Site at = Site::current()) {
  expect_aligned(to, 8, at);
  std::memcpy(to, &value, sizeof value);
}

template <class T>
T atomic_add(T* to, T value) {
  const T before = *to;
  *to = before + value;
  return before;
}

inline void begin_copy_16_bytes(void* to_shared, const void* from_global,
                                Site at = Site::current()) {
  expect_aligned(to_shared, 16, at);
  expect_aligned(from_global, 16, at);
  emulated_cuda::begin_copy(to_shared, from_global, 16);
}
inline void commit_copies() {
  emulated_cuda::commit_copies();
}
template <int kGroupsLeft>
void wait_for_copies() {
  emulated_cuda::wait_for_copies(kGroupsLeft);
}

inline float float_of_bits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline uint32_t bits_of_float(float value) {
  return std::bit_cast<uint32_t>(value);
}
inline Bf16 to_bf16(float value) {
  const uint32_t bits = bits_of_float(value);
  if (value != value) return {0x7FFF};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}
inline uint32_t to_bf16_pair(float low, float high) {
  return to_bf16(low).bits | static_cast<uint32_t>(to_bf16(high).bits) << 16;
}
inline float fast_exp(float x) {
  return std::exp(x);
}
inline float fast_exp2(float x) {
  return std::exp2(x);
}

void load_matrices(uint32_t (&registers)[4], const void* row, Site at = Site::current());
void load_matrices_transposed(uint32_t (&registers)[4], const void* row, Site at = Site::current());
void multiply_add(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                  Site at = Site::current());

}  // namespace lockstep::kernels::cuda
