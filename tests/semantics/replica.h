#pragma once

#include <memory>
#include <string>
#include <vector>

#include "controller/loop/controller.h"
#include "tests/semantics/rig.h"

namespace lockstep::semantics {

// Agents that can't be reached: calls fail after a while.
class NoAgents final : public loop::AgentClient {
 public:
  explicit NoAgents(loop::Timers& timers) : timers_(timers) {}
  void put_assignment(const loop::AgentAddress& agent,
                      const std::shared_ptr<const Assignment>& assignment, int64_t node_index,
                      Done done) override;
  void poll_state(const loop::AgentAddress& agent, const loop::StatePoll& poll, Done done) override;
  void forget(const loop::AgentAddress& agent) override;

 private:
  void answer(Done done);
  loop::Timers& timers_;
};

// A whole controller whose agents can't be reached, behind a proxy, on a loop that the test runs.
class Replica {
  Random random_;

 public:
  Replica(Loop& loop, FaultProxy& proxy, loop::ControllerOptions options);
  void start() { controller.start(); }

  kube::KubeClient client;
  NoAgents agents;
  bool is_lost = false;  // another replica leads now
  loop::Controller controller;
};

// Tests with jobs in the test's namespace; nothing runs their pods. Skipped if the server doesn't
// know the TrainingJob.
class Jobs : public Semantics {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::string jobs() const { return path("lockstep.dev/v1alpha1", "trainingjobs"); }
  Json make_job(const std::string& name, int nodes);
  Json job(const std::string& name) { return get(jobs() + "/" + name).body; }
  Json pod(const std::string& name) { return get(pods() + "/" + name).body; }
  // Returns the names of the pods that the job owns and that are not being deleted, joined by
  // spaces.
  std::string pods_of(const Json& job);
  // Returns the condition's status ("True" ...) or its reason; "" if there is no such condition.
  static std::string condition(const Json& job, const std::string& type);
  static std::string condition_reason(const Json& job, const std::string& type);
  loop::ControllerOptions options() const { return {.namespace_ = namespace_, .key = "key"}; }
  // Runs until the controller has written nothing for a while.
  void run_until_quiet(Loop& loop);
};

}  // namespace lockstep::semantics
