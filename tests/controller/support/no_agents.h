#pragma once

#include "controller/loop/agent_client.h"

namespace lockstep {

// An agent client that never answers.
class NoAgents final : public AgentClient {
 public:
  void put_assignment(const AgentAddress&, const std::shared_ptr<const Assignment>&, int64_t,
                      Done) override {}
  void poll_state(const AgentAddress&, int64_t, Duration, Done) override {}
  void forget(const AgentAddress&) override {}
};

}  // namespace lockstep
