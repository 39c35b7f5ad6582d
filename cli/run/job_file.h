#pragma once

#include <string>
#include <vector>

#include "common/api/problems.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep::cli {

struct LocalJob {
  TrainingJob job;
  std::vector<std::string> warnings;  // one per field that a local node ignores, and the check's
  std::vector<std::string> notes;     // of the worker: "memory: ..."
};

// Reads and checks a job as `lockstep run` and `lockstep validate` do: the document, its rules, and
// what it needs on this machine: data and weights, which the worker in `program_folder` reads (a
// warning says if it can't). kInvalid lists all problems, one per line. Fills in:
// - relative paths become absolute, based on the document's folder;
// - an unset threadsPerProcess becomes each process's share of this machine's CPUs;
// - a command runs in the document's folder, unless its podTemplate says otherwise.
Result<LocalJob> read_local_job(const std::string& file, const std::string& program_folder);

// Returns a problem if the job needs more GPUs than this machine has, which runs all of it. Pure.
Problems gpu_problems(const TrainingJobSpec& spec, int64_t gpus);

}  // namespace lockstep::cli
