#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "local/node/quantity.h"

namespace lockstep::local {

struct Taint {
  std::string key;
  std::string value;
  std::string effect;  // NoSchedule, PreferNoSchedule, NoExecute

  bool operator==(const Taint&) const = default;
};

// The parts of a Node object that decide which pods may run there.
struct NodeView {
  std::string name;
  std::map<std::string, std::string> labels;
  std::vector<Taint> taints;
  bool unschedulable = false;
  Resources allocatable;

  bool operator==(const NodeView&) const = default;
};

NodeView node_view(const Json& node);

// Whether a toleration (of a pod's spec.tolerations) matches the taint. Source: Kubernetes, "Taints
// and Tolerations".
bool tolerates(const Json& toleration, const Taint& taint);
bool any_tolerates(const Json& tolerations, const Taint& taint);

// Returns why a pod with this spec may not run there, in kube-scheduler's words; empty if it may.
// Checks spec.unschedulable, taints, nodeSelector and required node affinity; the scheduler checks
// resources.
std::string node_mismatch(const Json& pod_spec, const NodeView& node);

}  // namespace lockstep::local
