#include "controller/plan/images.h"

#include <algorithm>

#include "controller/plan/members.h"

namespace lockstep::plan {

const std::string& agent_image_of(const Pass& pass) {
  const std::string& recorded = pass.status.agentImage;
  return recorded.empty() ? pass.limits.job_image : recorded;
}

namespace {

bool agent_is_signed(const Pass& pass) {
  const Limits& limits = pass.limits;
  if (limits.agents_are_current) return true;
  const bool is_ours = !limits.agent_image.empty() && agent_image_of(pass) == limits.agent_image;
  return is_ours && std::ranges::all_of(pass.seen.pods, &PodView::is_signed);
}

}  // namespace

std::string requests_of_next_pod(const Pass& pass) {
  const bool wants_encryption = pass.spec().security.encryption == kRequiredEncryption;
  if (wants_encryption && std::ranges::all_of(pass.seen.pods, &PodView::is_encrypted)) {
    return kRequestsEncrypted;
  }
  return agent_is_signed(pass) ? kRequestsSigned : "";
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
