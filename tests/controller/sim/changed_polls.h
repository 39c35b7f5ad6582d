#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "controller/loop/agent_client.h"

namespace lockstep::sim {

// Changes the answers of agents to polls, and nothing else. The other client outlives it.
class ChangedPolls final : public loop::AgentClient {
 public:
  using Change = std::function<void(const loop::AgentAddress& agent, AgentState& state)>;
  ChangedPolls(loop::AgentClient& agents, Change change)
      : agents_(agents), change_(std::move(change)) {}

  void put_assignment(const loop::AgentAddress& agent,
                      const std::shared_ptr<const Assignment>& assignment, int64_t node_index,
                      Done done) override {
    agents_.put_assignment(agent, assignment, node_index, std::move(done));
  }
  void poll_state(const loop::AgentAddress& agent, const loop::StatePoll& poll,
                  Done done) override {
    agents_.poll_state(agent, poll,
                       [change = change_, agent, done = std::move(done)](Result<AgentState> state) {
                         if (state.ok()) change(agent, *state);
                         done(std::move(state));
                       });
  }
  void forget(const loop::AgentAddress& agent) override { agents_.forget(agent); }

 private:
  loop::AgentClient& agents_;
  const Change change_;
};

}  // namespace lockstep::sim
