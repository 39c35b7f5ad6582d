#pragma once

#include <string>

#include "controller/plan/pass.h"

namespace lockstep {

// Lockstep's own image: that of the pods of jobs that name none, and whose agent is put into the
// images of the others. Ranks of one round are of one version: status.agentImage keeps the image
// that the job's pods were made with, and whoever is made anew gets it too, whatever image a later
// controller has. It changes only in the write after which no member stays, so that a pod's name
// tells its image, also where a controller that is leaving makes it.

// What the job's next pod is made with.
const std::string& agent_image_of(const Pass& pass);

// Records the controller's image where nobody of the members before is left.
void derive_agent_image(Pass& pass);

}  // namespace lockstep
