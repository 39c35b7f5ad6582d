#include "controller/plan/agent_trouble.h"

#include "controller/plan/names.h"

namespace lockstep::plan {
namespace {

AgentTrouble refused_token(const Pass& pass, const PodView& pod) {
  return {.reason = "AgentRefusesToken",
          .message = "the agent of " + pod.name +
                     " rejects the controller's token, because the controller's key differs from "
                     "the one that Secret " +
                     token_secret_name(pass.job().metadata) +
                     " was created with. The job's state is unknown until the controller has that "
                     "key again, or until the Secret is deleted and the job is suspended and "
                     "resumed"};
}

AgentTrouble unsupported_protocol(const PodView& pod, int64_t protocol) {
  const bool is_newer = protocol > kProtocolNewest;
  return {.reason = is_newer ? "AgentTooNew" : "AgentTooOld",
          .message = "the agent of " + pod.name + " speaks protocol version " +
                     std::to_string(protocol) + ", but the controller supports versions " +
                     std::to_string(kProtocolOldest) + " to " + std::to_string(kProtocolNewest) +
                     ". The job's state is unknown until the controller is replaced by " +
                     (is_newer ? "a newer" : "an older") +
                     " version of Lockstep, or until the job is suspended and resumed, which "
                     "recreates its pods"};
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

}  // namespace lockstep::plan
