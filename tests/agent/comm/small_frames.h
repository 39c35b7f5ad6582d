#pragma once

#include <compare>
#include <cstddef>
#include <limits>

#include "agent/comm/comm_limits.h"

namespace lockstep::test {

// With these limits, operations of some ten thousand bytes exceed their windows and bypass the
// caches; shorter ones are lent.
inline constexpr comm::CommLimits kSmallFrames{.window_bytes = size_t{64} << 10,
                                               .frame_bytes_max = size_t{8} << 10,
                                               .past_cache_bytes = size_t{32} << 10,
                                               .loans = {.min = 1000}};

// Limits of a world that tests vary.
struct Limits {
  bool has_small_frames = false;
  bool lends = true;  // as much as possible between ranks that share memory, at any cost
  auto operator<=>(const Limits&) const = default;

  constexpr operator comm::CommLimits() const {
    comm::CommLimits limits = has_small_frames ? kSmallFrames : comm::CommLimits();
    limits.loans.max = std::numeric_limits<size_t>::max();
    limits.one_way_loans = limits.loans;
    limits.one_way_loans_sharing_cores = limits.loans;
    limits.loan_ranks_max = std::numeric_limits<int>::max();
    limits.loan_cost_max = lends ? std::numeric_limits<double>::infinity() : 0;
    return limits;
  }
};

}  // namespace lockstep::test
