#include "controller/plan/images.h"

#include <algorithm>

#include "controller/plan/members.h"

namespace lockstep::plan {

const std::string& agent_image_of(const Pass& pass) {
  const std::string& recorded = pass.status.agentImage;
  return recorded.empty() ? pass.limits.job_image : recorded;
}

bool agent_is_signed(const Pass& pass) {
  const Limits& limits = pass.limits;
  if (limits.agents_are_current) return true;
  const bool is_ours = !limits.agent_image.empty() && agent_image_of(pass) == limits.agent_image;
  return is_ours && std::ranges::all_of(pass.seen.pods, &PodView::is_signed);
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
