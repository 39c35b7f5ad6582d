#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"

namespace lockstep::kernels {

// Counts in three dimensions; x varies fastest.
struct Extent {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;

  bool operator==(const Extent&) const = default;
};

// The launch configuration of a kernel. Each op computes its shapes with pure functions of its
// sizes (kernels/ops/geometry.h and the op's own), which are tested without a GPU. Blocks are
// one-dimensional.
struct LaunchShape {
  const char* name = "";    // of the kernel, for errors
  Extent blocks = {};       // if any is 0, nothing is launched
  int threads = 0;          // per block; a multiple of 32
  size_t shared_bytes = 0;  // per block; all its shared memory

  bool operator==(const LaunchShape&) const = default;
};

// Limits of every GPU since sm_80 (CUDA C++ Programming Guide, "Compute Capabilities").
inline constexpr int kWarpThreads = 32;
inline constexpr int kBlockThreadsMax = 1024;
inline constexpr Extent kBlocksMax = {.x = 2147483647, .y = 65535, .z = 65535};
// The limit is 99 KiB on sm_86 and sm_120, which have 100 KiB; sm_80 (164 KiB) and sm_90 (228 KiB)
// also allow all but 1 KiB.
inline constexpr size_t kBlockSharedBytesMax = size_t{99} << 10;
// Limit for all arguments of a kernel together, since sm_70 and CUDA 12.1 (driver 530 or later).
inline constexpr size_t kKernelArgumentBytes = 32764;

constexpr bool is_empty(const LaunchShape& shape) {
  return shape.blocks.x == 0 || shape.blocks.y == 0 || shape.blocks.z == 0;
}
// Returns whether every GPU we compile for accepts the shape.
constexpr bool is_launchable(const LaunchShape& shape) {
  const auto fits = [](int64_t n, int64_t most) { return n >= 0 && n <= most; };
  return fits(shape.blocks.x, kBlocksMax.x) && fits(shape.blocks.y, kBlocksMax.y) &&
         fits(shape.blocks.z, kBlocksMax.z) && shape.threads > 0 &&
         shape.threads <= kBlockThreadsMax && shape.threads % kWarpThreads == 0 &&
         shape.shared_bytes <= kBlockSharedBytesMax;
}

// kInvalid, with the shape, if it is not launchable.
Status check_launchable(const LaunchShape& shape);

}  // namespace lockstep::kernels
