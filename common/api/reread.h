#pragma once

#include "common/api/training_job.h"

namespace lockstep {

// Updates `job`, which was read without problems from an earlier version of the same stored object,
// to `document`. Reads only metadata and status: the spec is the largest part and changes only with
// metadata.generation. Returns false and leaves `job` unchanged if the spec may have changed or the
// document cannot be read; then call stored_training_job_from_json().
bool reread_stored_job(const Json& document, TrainingJob& job);

}  // namespace lockstep
