#pragma once

#include <string>
#include <vector>

#include "common/api/training_job.h"

namespace lockstep::cli {

// Returns why spec.podTemplate keeps a job from running on a local node, by path: what the
// controller rejects everywhere, and what a local node does not support in the resulting pod.
Problems local_template_problems(const TrainingJob& job);

// Returns the fields of spec.podTemplate that a local node ignores, one line each.
std::vector<std::string> local_template_warnings(const Json& pod_template);

}  // namespace lockstep::cli
