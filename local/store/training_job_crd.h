#pragma once

#include "common/base/json.h"

namespace lockstep::local {

// Returns the chart's CustomResourceDefinition of TrainingJobs, which is compiled into the program.
const Json& training_job_crd();

}  // namespace lockstep::local
