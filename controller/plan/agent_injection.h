#pragma once

#include <string>

#include "common/base/json.h"

namespace lockstep {

// Puts the agent into a pod whose container `node` has an image of the user's: an init container
// with `agent_image` copies the agent's bundle (program, libraries and their loader: it needs
// nothing of the image) into a volume, which `node` mounts read-only at the bundle's own place. It
// is the first init container, as restricted as `node`, and asks for the same CPU and memory, which
// adds nothing to what the pod needs and leaves its class of quality of service as it is. Leaves
// the pod alone where the image of `node` is that image, or `agent_image` is empty: images then
// have the agent.
void inject_agent(const std::string& agent_image, Json& pod_spec);

}  // namespace lockstep
