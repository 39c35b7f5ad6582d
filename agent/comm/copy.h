#pragma once

#include <cstddef>

namespace lockstep::comm {

// memcpy that bypasses the caches if the processor can: it does not first read what it overwrites.
// For pieces of copies of at least CommLimits::past_cache_bytes in total. Pure.
void copy_past_cache(std::byte* into, const std::byte* from, size_t bytes);

}  // namespace lockstep::comm
