#pragma once

#include <span>

#include "agent/comm/communicator.h"
#include "common/api/timeline.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::comm {

// One question to rank 0 about its time, in nanoseconds of monotonic clocks.
struct RoundTrip {
  int64_t sent_ns = 0;      // own clock
  int64_t answered_ns = 0;  // rank 0's clock
  int64_t received_ns = 0;  // own clock
};

// Returns what the shortest of the round trips says: rank 0 answered in its middle, give or take
// half of its length. At least one round trip. Pure. Source: Cristian, "Probabilistic clock
// synchronization", 1989.
ClockOffset clock_offset_of(std::span<const RoundTrip> round_trips);

// Compares this rank's clock with rank 0's. All ranks call it; rank 0 answers one rank after the
// other, a few round trips each. Errors are those of the communicator.
Result<ClockOffset> measure_clock_offset(Communicator& world, const Clock& clock);

}  // namespace lockstep::comm
