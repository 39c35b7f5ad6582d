#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"

namespace lockstep::plan {

// Returns the problems for which the Pod Security Standard `restricted` refuses a PodSpec, each
// with its path and the expected value. Empty if the PodSpec is admitted. As of Kubernetes 1.34,
// for Linux pods. Stricter where an older version is: allows only the volume types that every
// version admits. Source: kubernetes.io, Concepts / Security / Pod Security Standards.
std::vector<std::string> restricted_problems(const Json& pod_spec);

}  // namespace lockstep::plan
