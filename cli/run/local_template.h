#pragma once

#include <string>
#include <vector>

#include "common/api/training_job.h"

namespace lockstep {

// What in spec.podTemplate keeps a job from running on a local node, each by its path: what the
// controller refuses anywhere, and what the local node can't do with the pod that it would get.
Problems local_template_problems(const TrainingJob& job);

// Fields of spec.podTemplate without effect on a local node, a line each.
std::vector<std::string> local_template_warnings(const Json& pod_template);

}  // namespace lockstep
