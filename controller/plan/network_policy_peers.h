#pragma once

#include <string>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::plan {

// The NetworkPolicyPeers that may connect to the agents' port in pods that have a NetworkPolicy:
// the controller and Prometheus. Empty: anybody.
struct NetworkPolicyPeers {
  Json agent_from = Json::array();
};

// Reads a JSON list of NetworkPolicyPeers, in the form in which a server stores them. kInvalid for
// members that a server would drop, since a stored policy could never equal the wanted one then.
// Source: k8s.io/api/networking/v1, types.go.
Result<Json> read_network_policy_peers(const std::string& text);

// Returns the peer that is the controller of an installation in this namespace, by the labels that
// its chart and its manifests give it.
Json controller_peer(const std::string& controller_namespace);

}  // namespace lockstep::plan
