#pragma once

#include <string>

#include "controller/plan/pass.h"

namespace lockstep::plan {

// Lockstep's own image runs in the pods of jobs that name no image, and provides the agent for the
// images of other jobs. All ranks of a round run one version: status.agentImage keeps the image
// that the job's pods were created with. A recreated pod gets the same one, whatever image a later
// controller has. It changes only in the status write after which none of the previous members is
// left. So a pod's name determines its image, even if a controller that is shutting down creates
// it.

// Returns the Lockstep image for the job's next pod.
const std::string& agent_image_of(const Pass& pass);

// Returns the value of the job's next pod for kRequestsAnnotation, which tells what its agent
// refuses:
// - kRequestsEncrypted if the job wants encryption and has no pod from a controller that did not
//   know it. An older agent, which an image brings, then ends or is refused: AgentRefusesToken.
// - else kRequestsSigned if the agent is certain to know sessions: the controller's image brings
//   it, and no pod of the job is from a controller that did not know them
// - else nothing
std::string requests_of_next_pod(const Pass& pass);

// Records the controller's image if none of the previous members is left.
void derive_agent_image(Pass& pass);

}  // namespace lockstep::plan
