#pragma once

#include <string>

#include "common/base/json.h"
#include "common/base/result.h"
#include "local/node/pod_plan.h"

namespace lockstep::local {

// What a pod may ask of its node and of itself.
struct PodFacts {
  std::string node_name;
  std::string pod_address;
  std::string host_address;
  Resources allocatable;  // of the machine: what a container without a limit may use
};

// metadata.name, metadata.labels['x'], status.podIP and the like; whole maps (metadata.labels) as
// `key="value"` lines. kInvalid: no such field. Source: Kubernetes, "Downward API".
Result<std::string> field_value(const Json& pod, const PodFacts& facts, const std::string& path);

// limits.cpu, requests.memory and the like of one of the pod's containers, in units of the divisor,
// rounded up. `reference` is a resourceFieldRef; `own` the container that it stands in, if any.
Result<std::string> resource_value(const PodPlan& plan, const PodFacts& facts,
                                   const Json& reference, const ContainerPlan* own);

}  // namespace lockstep::local
