#pragma once

#include "common/api/training_job.h"

namespace lockstep {

// Brings `job`, read without a problem from an earlier version of the same stored object, up to
// date with `document`: metadata and status alone are read, for most of a document is its spec,
// which changes with metadata.generation or not at all. False where it may have changed, or what is
// there can't be read: then `job` is as it was, and stored_training_job_from_json() is to be asked.
bool reread_stored_job(const Json& document, TrainingJob& job);

}  // namespace lockstep
