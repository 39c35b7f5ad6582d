#pragma once

#include "common/base/json.h"

namespace lockstep::local {

// The chart's CustomResourceDefinition of TrainingJobs, compiled into the program.
const Json& training_job_crd();

}  // namespace lockstep::local
