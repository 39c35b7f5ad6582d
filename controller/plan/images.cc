#include "controller/plan/images.h"

#include <algorithm>

#include "controller/plan/members.h"

namespace lockstep::plan {

const std::string& agent_image_of(const Pass& pass) {
  const std::string& recorded = pass.status.agentImage;
  return recorded.empty() ? pass.limits.job_image : recorded;
}

void derive_agent_image(Pass& pass) {
  const std::vector<int64_t> before = members_from_text(pass.job().status.members);
  const size_t both = std::min(before.size(), pass.members.size());
  for (size_t i = 0; i < both; ++i) {
    if (before[i] == pass.members[i]) return;
  }
  if (!pass.members.empty()) pass.status.agentImage = pass.limits.job_image;
}

}  // namespace lockstep::plan
