#pragma once

#include <cstddef>

namespace lockstep {

// From here on a copy pushes out of the caches more than it leaves there for whoever reads it next.
constexpr size_t kPastCacheBytes = size_t{8} << 20;

// memcpy that writes past the caches, where the processor can: without first reading what it
// overwrites. For pieces of what is kPastCacheBytes in all. Pure.
void copy_past_cache(std::byte* into, const std::byte* from, size_t bytes);

}  // namespace lockstep
