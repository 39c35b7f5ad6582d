#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"

namespace lockstep {

// How many of something in three directions, the first the fastest.
struct Extent {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;

  bool operator==(const Extent&) const = default;
};

// How a kernel is started. Each op's shapes are pure functions of its sizes (kernels/ops/geometry.h
// and the ops' own), which are tested without a GPU. Blocks are one-dimensional.
struct LaunchShape {
  const char* name = "";    // of the kernel, for errors
  Extent blocks = {};       // with a 0 nothing is started
  int threads = 0;          // of a block: a multiple of 32
  size_t shared_bytes = 0;  // of a block; all shared memory is asked for here

  bool operator==(const LaunchShape&) const = default;
};

// What every GPU since sm_80 takes (CUDA C++ Programming Guide, "Compute Capabilities").
inline constexpr int kWarpThreads = 32;
inline constexpr int kBlockThreadsMax = 1024;
inline constexpr Extent kBlocksMax = {.x = 2147483647, .y = 65535, .z = 65535};
// Of sm_80's 164 KiB and sm_90's 228 KiB a block may have all but one; sm_86 and sm_120 have 100.
inline constexpr size_t kBlockSharedBytesMax = size_t{99} << 10;
// All arguments of a kernel together, since sm_70 and CUDA 12.1 (drivers from 530 on).
inline constexpr size_t kKernelArgumentBytes = 32764;

constexpr bool is_empty(const LaunchShape& shape) {
  return shape.blocks.x == 0 || shape.blocks.y == 0 || shape.blocks.z == 0;
}
// Whether every GPU that we compile for takes it.
constexpr bool is_launchable(const LaunchShape& shape) {
  const auto fits = [](int64_t n, int64_t most) { return n >= 0 && n <= most; };
  return fits(shape.blocks.x, kBlocksMax.x) && fits(shape.blocks.y, kBlocksMax.y) &&
         fits(shape.blocks.z, kBlocksMax.z) && shape.threads > 0 &&
         shape.threads <= kBlockThreadsMax && shape.threads % kWarpThreads == 0 &&
         shape.shared_bytes <= kBlockSharedBytesMax;
}

// kInvalid, with the shape, where it is not.
Status check_launchable(const LaunchShape& shape);

}  // namespace lockstep
