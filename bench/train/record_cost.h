#pragma once

#include "common/base/clock.h"

namespace lockstep::bench {

// Returns the seconds that adding one record to a timeline takes (parallel::TimelineRecorder), the
// mean of a million.
double seconds_per_record(const Clock& clock);

}  // namespace lockstep::bench
