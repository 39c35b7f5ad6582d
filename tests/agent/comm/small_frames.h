#pragma once

#include "agent/comm/comm_limits.h"

namespace lockstep::test {

// Operations of some ten thousand bytes go past their windows, and past the caches.
inline constexpr CommLimits kSmallFrames{.window_bytes = size_t{64} << 10,
                                         .frame_bytes_max = size_t{8} << 10,
                                         .past_cache_bytes = size_t{32} << 10};

}  // namespace lockstep::test
