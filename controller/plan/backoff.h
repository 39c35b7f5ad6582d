#pragma once

#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// Returns how long to delay the restart after the `attempt`-th failure in a row without progress: 0
// for the first, then backoff_first x 2^(attempt - 2), at most backoff_max.
Duration restart_delay(int64_t attempt, const Limits& limits);

// Returns how much of that delay is left, by the wall clock and the failure's time in status. At
// most the whole delay, whatever the clocks say.
Duration restart_wait(const FailureStatus& failure, WallTime wall_now, const Limits& limits);

// Returns whether the restart after `failure`, which is in status, still has to wait. If so,
// requeues the plan for the end of the wait.
bool must_back_off(Pass& pass, const FailureStatus& failure);

}  // namespace lockstep::plan
