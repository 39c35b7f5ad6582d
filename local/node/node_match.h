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
  std::string time_added;

  bool operator==(const Taint&) const = default;
};

// What of a Node object decides which pods may run there.
struct NodeView {
  std::string name;
  std::map<std::string, std::string> labels;
  std::vector<Taint> taints;
  bool unschedulable = false;
  Resources allocatable;

  bool operator==(const NodeView&) const = default;
};

NodeView node_view(const Json& node);

// Whether one of `tolerations` (a pod's spec.tolerations) matches. Source: Kubernetes, "Taints and
// Tolerations".
bool tolerates(const Json& toleration, const Taint& taint);
bool any_tolerates(const Json& tolerations, const Taint& taint);

// Why a pod of this spec may not run there, in kube-scheduler's words; empty: it may. Looks at
// spec.unschedulable, taints, nodeSelector and the required terms of node affinity; resources are
// the scheduler's.
std::string misfit(const Json& pod_spec, const NodeView& node);

}  // namespace lockstep::local
