#pragma once

#include "controller/loop/agent_client.h"

namespace lockstep::plan {

// An agent client that never answers.
class NoAgents final : public loop::AgentClient {
 public:
  void put_assignment(const loop::AgentAddress&, const std::shared_ptr<const Assignment>&, int64_t,
                      Done) override {}
  void poll_state(const loop::AgentAddress&, const loop::StatePoll&, Done) override {}
  void forget(const loop::AgentAddress&) override {}
};

}  // namespace lockstep::plan
