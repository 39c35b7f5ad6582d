#pragma once

#include <cstddef>

namespace lockstep {

// memcpy that writes past the caches, where the processor can: without first reading what it
// overwrites. For pieces of what is CommLimits::past_cache_bytes in all. Pure.
void copy_past_cache(std::byte* into, const std::byte* from, size_t bytes);

}  // namespace lockstep
