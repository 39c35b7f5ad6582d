#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/loop/controller.h"
#include "tests/controller/sim/connection.h"
#include "tests/controller/sim/world.h"

namespace lockstep::sim {

// What is put between the controller and its world: a wrong policy, or a wrong part of the loop.
struct Mutation {
  PlanFunction plan = lockstep::plan;
  // Stands before the real connection; empty: nothing does.
  std::function<std::unique_ptr<ApiClient>(ApiClient&)> api{};
  std::function<std::unique_ptr<AgentClient>(AgentClient&)> agents{};
  Limits limits{};
  AgentWatchOptions watch{};
};

// The world and, at most times, controllers in it: one, or several of which one leads. One that
// dies is started anew after a while.
class Simulation {
 private:
  ManualClock clock_;

 public:
  explicit Simulation(uint64_t seed, Mutation mutation = {}, int replicas = 1);
  ~Simulation();

  World world;

  // Until `done` holds, an invariant breaks, or the time is over; whether it holds.
  bool run(Duration time, const std::function<bool()>& done);
  // Of those that run now, as of each one that starts later, by chance.
  void skew_clocks();
  bool is_over(const std::string& key) const;
  TrainingJobStatus status(const std::string& key) const;
  // Broken invariants and all jobs, in words.
  std::string describe() const;

 private:
  struct Replica;

  void start(size_t place);
  void end(size_t place);
  void skew(Replica& replica);
  void stall();
  static void tell_to_end(Replica& replica);
  TimePoint next_turn(TimePoint end) const;

  const Mutation mutation_;
  std::vector<std::unique_ptr<Replica>> replicas_;  // nullptr: not running now
  int64_t starts_ = 0;
};

}  // namespace lockstep::sim
