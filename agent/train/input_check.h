#pragma once

#include "common/api/problems.h"
#include "common/api/training_job.h"

namespace lockstep::train {

// Returns what keeps ranks from training with the job's data and weights, each with the path of its
// field; empty if nothing does. It is what a worker would refuse, found without one. Reads the
// headers of the weights, and tokens or rows within bounds (check_tokens(), check_samples()).
// `train` is valid, and its paths are relative to the working folder.
Problems input_problems(const TrainSpec& train);

}  // namespace lockstep::train
