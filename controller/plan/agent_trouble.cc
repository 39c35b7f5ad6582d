#include "controller/plan/agent_trouble.h"

#include "controller/plan/names.h"

namespace lockstep {
namespace {

AgentTrouble refused_token(const Pass& pass, const PodView& pod) {
  return {.reason = "AgentRefusesToken",
          .message = "the agent of " + pod.name +
                     " doesn't know the controller's token for the job: the controller's key is "
                     "not that which Secret " +
                     token_secret_name(pass.job().metadata) +
                     " was made with. Until it is again, or the Secret is deleted and the job "
                     "suspended and resumed, nothing is known of the job"};
}

AgentTrouble unsupported_protocol(const PodView& pod, int64_t protocol) {
  const bool is_newer = protocol > kProtocolNewest;
  return {.reason = is_newer ? "AgentTooNew" : "AgentTooOld",
          .message = "the agent of " + pod.name + " speaks version " + std::to_string(protocol) +
                     " of the protocol, this controller versions " +
                     std::to_string(kProtocolOldest) + " to " + std::to_string(kProtocolNewest) +
                     ". Until the controller is of " + (is_newer ? "a later" : "an earlier") +
                     " version of Lockstep again, or the job is suspended and resumed, which makes "
                     "its pods anew, nothing is known of the job"};
}

}  // namespace

std::optional<AgentTrouble> agent_trouble(const Pass& pass) {
  for (const PodView* pod : pass.current) {
    const AgentView* agent = pass.agent(pod);
    if (agent == nullptr) continue;
    if (agent->refuses_token) return refused_token(pass, *pod);
    if (agent->has_unsupported_protocol())
      return unsupported_protocol(*pod, agent->state->protocol);
  }
  return std::nullopt;
}

}  // namespace lockstep
