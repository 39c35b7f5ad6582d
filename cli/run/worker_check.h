#pragma once

#include <string>

#include "common/api/problems.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep::cli {

// Asks `lockstep-worker check` what is wrong with the job's data and weights, because this program
// links no agent code. The job is valid and its paths are absolute. Returns the problems, each with
// the path of its field. kUnavailable if the worker could not be asked. Blocks until it has ended.
Result<Problems> worker_problems(const std::string& program_folder, const TrainingJob& job);

}  // namespace lockstep::cli
