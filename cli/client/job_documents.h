#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"

namespace lockstep {

struct JobDocument {
  std::string file;
  Json document;
};

// The TrainingJobs in files (`-`: stdin, bounded), several documents a file, Lists taken apart;
// each one checked as `lockstep validate` does. kInvalid with all that is wrong, each by file and
// path, and for other kinds. `names_only`: the rules of the spec don't count (to delete them).
Result<std::vector<JobDocument>> read_job_documents(const std::vector<std::string>& files,
                                                    bool names_only = false);

}  // namespace lockstep
