#pragma once

#include "controller/plan/pass.h"

namespace lockstep::plan {

// Returns whether the job asks for a NetworkPolicy.
bool wants_network_policy(const TrainingJobSpec& spec);

// Returns the job's NetworkPolicy as it is POSTed, owned by the job. It selects the job's pods and
// lets in:
// - connections from the job's own pods, to any port
// - TCP connections from `peers` to the agent's port, which also serves the metrics
// It has no defaults for the server to add, so that a stored one can be compared with it.
Json make_network_policy(const TrainingJob& job, const NetworkPolicyPeers& peers);

// Sets the condition NetworkPolicyFailing and sends its event if the job's NetworkPolicy is not as
// the job asks, and the server refuses that or the controller makes no policies. The condition
// appears when it is first true.
void derive_network_policy(Pass& pass);

}  // namespace lockstep::plan
