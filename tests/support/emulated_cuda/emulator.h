#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>

#include "common/base/result.h"
#include "kernels/device/launch_shape.h"

// Runs kernels on the CPU, to test their indices, barriers and reductions without a GPU. Blocks run
// one after another. The threads of a block are fibers, which run until they reach a barrier or a
// warp exchange. The order of blocks and threads is drawn from a seed, and shared memory starts as
// NaN, so that a missing barrier shows in the results.
//
// It models no time, memory model or caches. A kernel that passes may still be slow, or have a race
// that needs two threads to interleave between two barriers. A launch runs entirely on the calling
// host thread; host threads may launch concurrently.
namespace lockstep::emulated_cuda {

// The type of threadIdx, blockIdx, blockDim and gridDim.
struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// Runs the kernel to its end: calls `thread` for every thread of every block. kInvalid for a shape
// that no GPU accepts. kInternal, with kernel, block, thread, file and line, for what would hang or
// be undefined:
// - a barrier that not all threads reach, or at different places
// - an exchange that names a lane that does not exist
// - a misaligned access
Status run_kernel(const kernels::LaunchShape& shape, const std::function<void()>& thread,
                  uint64_t seed);

// Returns the number of loads, stores and copies of 8 or 16 bytes in all launches of this host
// thread: a machine-independent cost of an algorithm.
uint64_t wide_accesses();

// The functions below may only be called from kernels; the emulated intrinsics use them.

// Waits for all threads of the block.
void wait_for_block(std::source_location at);

// An exchange between the lanes of a warp. When all lanes of the mask have called with the same
// mask at the same place, `combine` runs once and all continue. It gets each lane's request by lane
// index; null for lanes that are not in the mask.
struct WarpRequest {
  void (*combine)(WarpRequest* const (&lanes)[kernels::kWarpThreads]) = nullptr;
  uint32_t mask = 0;
  const void* in = nullptr;
  void* out = nullptr;
  std::source_location at;
};
void exchange_in_warp(WarpRequest& request);

// Returns the block's shared memory, of the shape's size.
void* shared_memory();
// Ends the kernel with an error; `words` must outlive it.
[[noreturn]] void fault(const char* words, std::source_location at);

void count_access();

// Asynchronous copies (cp.async). The emulator performs a copy only when wait_for_copies() requires
// it.
void begin_copy(void* to, const void* from, size_t bytes);
void commit_copies();
void wait_for_copies(size_t groups_left);

}  // namespace lockstep::emulated_cuda

// CUDA's built-in variables, for the running thread.
extern thread_local constinit lockstep::emulated_cuda::Index3 threadIdx;
extern thread_local constinit lockstep::emulated_cuda::Index3 blockIdx;
extern thread_local constinit lockstep::emulated_cuda::Index3 blockDim;
extern thread_local constinit lockstep::emulated_cuda::Index3 gridDim;
