#pragma once

#include <string>
#include <vector>

#include "common/api/problems.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep::cli {

struct WorkerCheck {
  Problems problems;  // what is wrong with data and weights, each with the path of its field
  // If nothing is wrong: "memory: ..." and, if this machine has too little, "warning: ...".
  std::vector<std::string> notes;
};
// Asks `lockstep-worker check` about the job, because this program links no agent code. The job is
// valid and its paths are absolute. kUnavailable if the worker could not be asked. Blocks until it
// has ended.
Result<WorkerCheck> check_with_worker(const std::string& program_folder, const TrainingJob& job);

// Makes the job, as JSON, this process's standard input, for a worker that replaces this process.
Status put_on_stdin(const TrainingJob& job);

}  // namespace lockstep::cli
