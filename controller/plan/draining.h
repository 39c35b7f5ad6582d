#pragma once

#include "controller/plan/pass.h"

namespace lockstep::plan {

// The reason of Restarting, and an event, once all ranks have saved and left because a pod was
// stopped.
inline constexpr char kDrained[] = "Drained";

// Returns whether that was so, and not all ranks train again.
bool was_drained(const TrainingJobStatus& status);

bool stores_checkpoints(const TrainingJobSpec& spec);

// Returns whether the ranks of the round save a checkpoint and leave together, with kExitStopped,
// when one of their pods is stopped: a training job with a folder for checkpoints.
bool saves_when_stopped(const Pass& pass);

}  // namespace lockstep::plan
