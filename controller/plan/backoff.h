#pragma once

#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "controller/plan/pass.h"

namespace lockstep {

// How long the restart after the `attempt`-th failure in a row without progress is held back:
// nothing for the first, then backoff_first x 2^(attempt - 2), at most backoff_max.
Duration restart_delay(int64_t attempt, const Limits& limits);

// How much of that is still to wait, by the wall clock and the time of the failure in status; never
// more than the whole, whatever the clocks say.
Duration restart_wait(const FailureStatus& failure, WallTime wall_now, const Limits& limits);

// Whether the restart after `failure`, which is in status, has to wait; the plan is then made again
// when it need not.
bool hold_back(Pass& pass, const FailureStatus& failure);

}  // namespace lockstep
