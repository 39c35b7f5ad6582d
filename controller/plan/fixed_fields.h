#pragma once

#include <string>

#include "common/api/training_job.h"

namespace lockstep {

// What the pods and the assignments of a job are made of can't change while it has any: a pod that
// is made anew would differ from the others. spec.nodes, suspend and the policies (failure, times)
// may change at any time; everything may while the job is suspended.

// Fingerprints of those fields, for status.fixed: "command=1a2b3c4d,image=...". A field that has
// its default is left out, so that a later version's new fields change nothing.
std::string fixed_fields(const TrainingJobSpec& spec);

// A problem for each field that is not as `fixed` has it; none where that is empty.
Problems changed_fields(const std::string& fixed, const TrainingJobSpec& spec);

}  // namespace lockstep
