#pragma once

#include <string>

#include "common/api/training_job.h"

namespace lockstep::plan {

// Fields that a job's pods and assignments are made from can't change while it has pods: a
// recreated pod would differ from the others. spec.nodes, suspend and the policies (failure, times)
// may change at any time, but for spec.nodes of a job with parameter servers. All fields may change
// while the job is suspended.

// Returns fingerprints of those fields, for status.fixed: "command=1a2b3c4d,image=...". Omits
// fields that have their default, so that new fields of a later version change nothing.
std::string fixed_fields(const TrainingJobSpec& spec);

// Returns a problem for each field that differs from `fixed`; none if `fixed` is empty.
Problems changed_fields(const std::string& fixed, const TrainingJobSpec& spec);

}  // namespace lockstep::plan
