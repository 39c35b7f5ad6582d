#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/dtype.h"

// The only hardware features kernels use, apart from C++ and threadIdx, blockIdx, blockDim and
// gridDim. Kernels also run on the CPU, with the emulated version of this file
// (tests/support/emulated_cuda). They therefore use no other built-ins, no static __shared__
// variables (shared_memory() returns a block of the LaunchShape's size) and no CUDA headers.
//
// Lanes are numbered 0..31 in their warp. All 32 lanes must call a warp function together; all
// threads of the block must call a block function.
namespace lockstep::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

__device__ __forceinline__ void sync_block() {
  __syncthreads();
}
__device__ __forceinline__ void sync_warp() {
  __syncwarp();
}
// Return another lane's value: of lane ^ mask, or of the lane `distance` positions lower (the
// lane's own value if that lane does not exist).
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
template <class T>
__device__ __forceinline__ T shuffle_up(T value, int distance) {
  return __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(distance));
}
// Returns a mask with bit i set if lane i's predicate holds.
__device__ __forceinline__ uint32_t ballot(bool predicate) {
  return __ballot_sync(kAllLanes, predicate);
}

// Returns the number of set bits.
__device__ __forceinline__ int count_bits(uint32_t bits) {
  return __popc(bits);
}

// --- memory ---

// Returns the block's shared memory, aligned to 128 bytes and uninitialized.
template <class T>
__device__ __forceinline__ T* shared_memory() {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  return reinterpret_cast<T*>(shared_bytes);
}

struct Words2 {
  uint32_t word[2];
};
struct Words4 {
  uint32_t word[4];
};
// Each is a single access; the address must be a multiple of the size.
__device__ __forceinline__ Words4 load_16_bytes(const void* from) {
  const uint4 v = *static_cast<const uint4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ void store_16_bytes(void* to, const Words4& value) {
  *static_cast<uint4*>(to) = make_uint4(value.word[0], value.word[1], value.word[2], value.word[3]);
}
__device__ __forceinline__ Words2 load_8_bytes(const void* from) {
  const uint2 v = *static_cast<const uint2*>(from);
  return {{v.x, v.y}};
}
__device__ __forceinline__ void store_8_bytes(void* to, const Words2& value) {
  *static_cast<uint2*>(to) = make_uint2(value.word[0], value.word[1]);
}

// Returns the old value. Only for integers, whose sum does not depend on the order.
__device__ __forceinline__ int32_t atomic_add(int32_t* to, int32_t value) {
  return atomicAdd(to, value);
}
__device__ __forceinline__ int64_t atomic_add(int64_t* to, int64_t value) {
  return static_cast<int64_t>(
      atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value)));
}

// Starts an asynchronous copy of 16 bytes from global to shared memory; both addresses are
// multiples of 16. commit_copies() closes a group of the copies started so far.
// wait_for_copies<N>() waits until all but the last N groups of this thread are complete. Other
// threads see the data after a barrier. Source: PTX ISA, cp.async.
__device__ __forceinline__ void begin_copy_16_bytes(void* to_shared, const void* from_global) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(to_shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from_global) : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kGroupsLeft>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
}

// --- numbers ---

__device__ __forceinline__ float float_of_bits(uint32_t bits) {
  return __uint_as_float(bits);
}
__device__ __forceinline__ uint32_t bits_of_float(float value) {
  return __float_as_uint(value);
}
// Rounds to nearest even; NaN stays NaN.
__device__ __forceinline__ Bf16 to_bf16(float value) {
  Bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
// Converts two values: `low` goes to the lower 16 bits, which come first in memory.
__device__ __forceinline__ uint32_t to_bf16_pair(float low, float high) {
  uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
// Compute e^x and 2^x within a few float ulp; may flush denormal results to 0.
__device__ __forceinline__ float fast_exp(float x) {
  return __expf(x);
}
__device__ __forceinline__ float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// --- bf16 matrices, one whole warp together ---
// Source of all layouts: PTX ISA, "Warp Level Matrix Instructions", ldmatrix and mma.m16n8k16.

// Loads four 8 x 8 matrices from shared memory. Lane 8 i + r passes the address of row r of matrix
// i (16 bytes, a multiple of 16). registers[i] receives two elements of matrix i:
// - load_matrices: element (lane / 4, lane % 4 * 2), and its right neighbour in the upper half.
// - load_matrices_transposed: element (lane % 4 * 2, lane / 4), and the one below it in the upper
//   half.
__device__ __forceinline__ void load_matrices(uint32_t (&registers)[4], const void* row) {
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&registers)[4],
                                                         const void* row) {
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(from)
               : "memory");
}

// Computes sum[16,8] += a[16,16] * b[16,8] with bf16 factors and fp32 sums. Each lane holds these
// elements, with g = lane / 4 and t = lane % 4:
// a[0]: (g, 2t), (g, 2t+1)      a[1]: the same of row g+8
// a[2]: (g, 2t+8), (g, 2t+9)    a[3]: the same of row g+8
// b[0]: (2t, g), (2t+1, g)      b[1]: (2t+8, g), (2t+9, g)
// sum[0], sum[1]: (g, 2t), (g, 2t+1)   sum[2], sum[3]: the same of row g+8
__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace lockstep::kernels::cuda
