#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"

namespace lockstep::cli {

struct JobDocument {
  std::string file;
  Json document;
};

// Reads the TrainingJobs in files (`-`: stdin, limited in size). A file may hold several documents;
// Lists are expanded. Checks each job like `lockstep validate`. kInvalid lists all problems by file
// and path, including documents of other kinds. `names_only` (for deletion) ignores the rules of
// the spec.
Result<std::vector<JobDocument>> read_job_documents(const std::vector<std::string>& files,
                                                    bool names_only = false);

}  // namespace lockstep::cli
