#pragma once

#include "common/api/problems.h"
#include "common/api/training_job.h"

namespace lockstep {

// What is wrong with a job that runs spec.command: the command itself, the variables asked for, and
// fields that only the built-in loop carries out. spec is within its ranges.
Problems command_problems(const TrainingJobSpec& spec);

}  // namespace lockstep
