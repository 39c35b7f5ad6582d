#pragma once

#include "common/api/problems.h"
#include "common/api/training_job.h"

namespace lockstep {

// Returns the problems of a job that runs spec.command: in the command, in the variables it asks
// for, and fields that only the built-in loop supports. `spec` must have passed the range checks.
Problems command_problems(const TrainingJobSpec& spec);

}  // namespace lockstep
