#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>

#include "common/base/result.h"
#include "kernels/device/launch_shape.h"

// Runs kernels on the CPU, so that their indices, barriers and reductions are tested without a GPU:
// the blocks one after another, the threads of a block as fibers, which run until they meet a
// barrier or an exchange among the lanes of a warp. Blocks and threads go on in an order drawn from
// a seed, and shared memory begins as NaN, so that a missing barrier shows in the results.
//
// It knows no time, no memory model and no caches: what it passes may still be slow, or race in a
// way that needs two threads within one stretch between barriers to be interleaved. Everything of a
// launch happens on the calling host thread; host threads may launch at the same time.
namespace lockstep::emulated_cuda {

// The three components of threadIdx and the like.
struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// Runs the kernel (`thread` is called for every thread of every block) to its end. kInvalid for a
// shape that no GPU takes; kInternal, with kernel, block, thread, file and line, for what would
// hang or be undefined: a barrier that not all threads reach, or at different places; an exchange
// that names a lane that isn't there; an access that is not aligned.
Status run_kernel(const LaunchShape& shape, const std::function<void()>& thread, uint64_t seed);

// Loads, stores and copies of 8 or 16 bytes by the threads of this host thread's launches, since it
// began: what an algorithm costs, whatever the machine.
uint64_t wide_accesses();

// What follows is called from within kernels alone; the stand-ins for the intrinsics use it.

// Waits for all threads of the block.
void wait_for_block(std::source_location at);

// An exchange among the lanes of a warp: when all lanes of the mask have called with the same mask
// at the same place, `combine` is called once and all go on. It finds each lane's request by lane;
// those not in the mask are null.
struct WarpRequest {
  void (*combine)(WarpRequest* const (&lanes)[kWarpThreads]) = nullptr;
  uint32_t mask = 0;
  const void* in = nullptr;
  void* out = nullptr;
  std::source_location at;
};
void exchange_in_warp(WarpRequest& request);

// The block's shared memory, of the shape's size.
void* shared_memory();
// Ends the kernel with an error of these words, which live on.
[[noreturn]] void fault(const char* words, std::source_location at);

void count_access();

// Copies that a thread has begun and that are done later (cp.async): at the latest by wait(), at
// the earliest then too.
void begin_copy(void* to, const void* from, size_t bytes);
void commit_copies();
void wait_for_copies(size_t groups_left);

}  // namespace lockstep::emulated_cuda

// CUDA's names, of the thread that runs.
extern thread_local constinit lockstep::emulated_cuda::Index3 threadIdx;
extern thread_local constinit lockstep::emulated_cuda::Index3 blockIdx;
extern thread_local constinit lockstep::emulated_cuda::Index3 blockDim;
extern thread_local constinit lockstep::emulated_cuda::Index3 gridDim;
