#pragma once

#include <functional>
#include <memory>
#include <string>

#include "controller/loop/agent_client.h"
#include "controller/loop/api_client.h"
#include "tests/controller/sim/world.h"

namespace lockstep::sim {

// One controller's connection to the world. When the connection dies, its pending replies are
// dropped; requests already sent still arrive.
class Connection final : public loop::ApiClient, public loop::AgentClient {
 public:
  explicit Connection(World& world, std::string identity = "controller")
      : world_(world), identity_(std::move(identity)) {}

  void send(loop::ApiRequest request, loop::ApiClient::Done done) override;
  std::unique_ptr<loop::WatchHandle> watch(loop::WatchRequest request,
                                           loop::WatchHandler handler) override;
  void put_assignment(const loop::AgentAddress& agent,
                      const std::shared_ptr<const Assignment>& assignment, int64_t node_index,
                      loop::AgentClient::Done done) override;
  void poll_state(const loop::AgentAddress& agent, const loop::StatePoll& poll,
                  loop::AgentClient::Done done) override;
  void forget(const loop::AgentAddress&) override {}

  // Freezes the controller until then: nothing reaches it.
  void stall(TimePoint until) { stalled_until_ = until; }
  TimePoint stalled_until() const { return stalled_until_; }
  // Returns whether the controller has made a write after which it has to die.
  bool crash_wanted() const { return crash_wanted_; }

 private:
  class Watch;
  class Handle;

  void send_now(loop::ApiRequest request, loop::ApiClient::Done done);
  // Calls `call` after `delay`, or when the controller wakes up; drops it if the controller is
  // gone.
  void deliver(Duration delay, std::function<void()> call);
  void answer(loop::ApiClient::Done done, loop::ApiReply reply);
  void answer(const loop::AgentAddress& agent, loop::AgentClient::Done done,
              Result<AgentState> result);

  World& world_;
  std::string identity_;
  TimePoint stalled_until_{};
  bool crash_wanted_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep::sim
