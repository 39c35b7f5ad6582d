#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/loop/controller.h"
#include "tests/controller/sim/connection.h"
#include "tests/controller/sim/world.h"

namespace lockstep::sim {

// Replaces the policy, or wraps a part of the loop, to plant a bug in the controller.
struct Mutation {
  loop::PlanFunction plan = lockstep::plan::plan;
  // Wraps the real connection; empty: no wrapper.
  std::function<std::unique_ptr<loop::ApiClient>(loop::ApiClient&)> api{};
  std::function<std::unique_ptr<loop::AgentClient>(loop::AgentClient&)> agents{};
  plan::Limits limits{};
  loop::AgentWatchOptions watch{};
  loop::ProgressBudget::Options progress{};
  int64_t oldest_protocol = kProtocolOldest;  // of agents
};

// The world and its controllers: one, or several of which one leads. A controller that dies is
// started again after a while; until then there may be none.
class Simulation {
 private:
  ManualClock clock_;

 public:
  explicit Simulation(uint64_t seed, Mutation mutation = {}, int replicas = 1);
  ~Simulation();

  World world;

  // Runs until `done` holds, an invariant breaks, or `time` is over. Returns whether `done` holds
  // and no invariant broke.
  bool run(Duration time, const std::function<bool()>& done);
  // May skew the clocks of the controllers that run now. Each one that starts later is skewed by
  // chance anyway.
  void skew_clocks();
  bool is_over(const std::string& key) const;
  TrainingJobStatus status(const std::string& key) const;
  // Returns the broken invariants and the status of all jobs as text.
  std::string describe() const;

 private:
  struct Replica;

  void start(size_t place);
  void end(size_t place);
  void skew(Replica& replica);
  void stall();
  static void terminate(Replica& replica);
  TimePoint next_turn(TimePoint end) const;

  const Mutation mutation_;
  std::vector<std::unique_ptr<Replica>> replicas_;  // nullptr: not running now
  int64_t starts_ = 0;
};

}  // namespace lockstep::sim
