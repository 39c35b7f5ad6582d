#pragma once

#include <string>
#include <vector>

#include "controller/plan/conditions.h"
#include "controller/plan/plan.h"

namespace lockstep {

// One job in one situation, and what plan() makes of it: for tests of the policies.
struct Scene {
  Observed seen;
  Limits limits;
  TimePoint now{std::chrono::hours(10)};

  // A valid job of `nodes` nodes, as it was created; the server takes its pods.
  explicit Scene(int64_t nodes = 2);

  TrainingJobStatus& status() { return seen.job.status; }
  // A pod of the member, Running at 10.0.0.<index + 1>.
  PodView& add_pod(int64_t index, int64_t incarnation = 1);
  // The agent's report of that pod, in the present round: its worker runs, in `phase`.
  AgentState& add_agent(int64_t index, WorkerPhase phase = WorkerPhase::kTraining);
  AgentState& agent(int64_t index);
  // Members admitted, pods running, round `round` recorded; agents have not reported.
  void form(int64_t round = 1);
  // That, and everybody trains.
  void train(int64_t round = 1);
  void fail_worker(int64_t index, int64_t exit_code, double seconds_ago,
                   std::string reason = "Error");
  // Time goes by, for both clocks.
  void advance(Duration by);

  Plan plan() const { return lockstep::plan(seen, now, limits); }
  // Applies the plan's status write, as the server would; whether there was one.
  bool settle();
};

// The actions of one kind.
template <class T>
std::vector<T> only(const Plan& plan) {
  std::vector<T> found;
  for (const Action& action : plan.actions) {
    if (const T* match = std::get_if<T>(&action)) found.push_back(*match);
  }
  return found;
}

// A decision is written alone: no action beside the status write and its events.
bool is_decision(const Plan& plan);
// The condition of that type, or one without a name.
const Condition& condition(const TrainingJobStatus& status, const char* type);
// The status that the plan writes, or that of before.
TrainingJobStatus written(const Scene& scene, const Plan& plan);

}  // namespace lockstep
