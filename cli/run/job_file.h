#pragma once

#include <string>
#include <vector>

#include "common/api/problems.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep {

struct LocalJob {
  TrainingJob job;
  std::vector<std::string> warnings;  // fields that a local node does not carry out, each by itself
};

// Reads and checks a job as `lockstep run` and `lockstep validate` do: the document, its rules, and
// what it needs of this machine (its data). Relative paths become absolute, from the document's
// folder; threadsPerProcess, where it is left open, each process's part of this machine's CPUs. A
// command runs in the document's folder, unless its podTemplate says otherwise. kInvalid with all
// that is wrong, a line each.
Result<LocalJob> read_local_job(const std::string& file);

// Where the job asks for more GPUs than the machine has that is to run all of it. Pure.
Problems gpu_problems(const TrainingJobSpec& spec, int64_t gpus);

}  // namespace lockstep
