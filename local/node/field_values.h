#pragma once

#include <string>

#include "common/base/json.h"
#include "common/base/result.h"
#include "local/node/pod_plan.h"

namespace lockstep::local {

// Facts about a pod and its node, for downward API fields.
struct PodFacts {
  std::string node_name;
  std::string pod_address;
  std::string host_address;
  Resources allocatable;  // of the machine; the default limit of a container without one
};

// Returns metadata.name, metadata.labels['x'], status.podIP and the like; whole maps
// (metadata.labels) as `key="value"` lines. kInvalid: no such field. Source: Kubernetes, "Downward
// API".
Result<std::string> field_value(const Json& pod, const PodFacts& facts, const std::string& path);

// Returns limits.cpu, requests.memory and the like of one of the pod's containers, in units of the
// divisor, rounded up. `reference` is a resourceFieldRef; `own` is the container that contains it,
// or null.
Result<std::string> resource_value(const PodPlan& plan, const PodFacts& facts,
                                   const Json& reference, const ContainerPlan* own);

}  // namespace lockstep::local
