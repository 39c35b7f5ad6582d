#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"

namespace lockstep {

// What in a PodSpec the Pod Security Standard `restricted` refuses, each by its path and with what
// would be right; empty: it is admitted. As of Kubernetes 1.34, for Linux pods; stricter where an
// older version is (the volume types are those that every version admits).
// Source: kubernetes.io, Concepts / Security / Pod Security Standards.
std::vector<std::string> restricted_problems(const Json& pod_spec);

}  // namespace lockstep
