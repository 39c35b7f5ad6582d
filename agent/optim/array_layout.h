#pragma once

#include <cstdint>

#include "common/layout/shard_layout.h"

namespace lockstep::optim {

// An array of one rank has a value for each float of the arena, in its layout, or only for those of
// the rank's shard, in the order of the slices.
enum class ArrayLayout : uint8_t { kArena, kShard };

// Returns where a slice begins in an array of that layout.
inline int64_t place_of(const ShardSlice& slice, ArrayLayout layout) {
  return layout == ArrayLayout::kArena ? slice.offset : slice.local;
}

}  // namespace lockstep::optim
