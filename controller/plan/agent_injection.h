#pragma once

#include <string>

#include "common/base/json.h"

namespace lockstep::plan {

// Injects the agent into a pod whose container `node` runs a user's image. An init container with
// `agent_image` copies the agent's bundle into a volume, which `node` mounts read-only at the
// bundle's own path. The bundle holds the program, its libraries and their loader; it needs nothing
// from the user's image. The init container comes first, is as restricted as `node`, and requests
// the same CPU and memory. The pod's total request and QoS class thus do not change. No-op if
// `node` already runs `agent_image`, or if `agent_image` is empty (images then contain the agent).
void inject_agent(const std::string& agent_image, Json& pod_spec);

}  // namespace lockstep::plan
