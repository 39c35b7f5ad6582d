#pragma once

#include <string>
#include <vector>

#include "common/api/problems.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep {

struct LocalJob {
  TrainingJob job;
  std::vector<std::string> warnings;  // one per field that a local node ignores
};

// Reads and checks a job as `lockstep run` and `lockstep validate` do: the document, its rules, and
// what it needs on this machine (its data). kInvalid lists all problems, one per line. Fills in:
// - relative paths become absolute, based on the document's folder;
// - an unset threadsPerProcess becomes each process's share of this machine's CPUs;
// - a command runs in the document's folder, unless its podTemplate says otherwise.
Result<LocalJob> read_local_job(const std::string& file);

// Returns a problem if the job needs more GPUs than this machine has, which runs all of it. Pure.
Problems gpu_problems(const TrainingJobSpec& spec, int64_t gpus);

}  // namespace lockstep
