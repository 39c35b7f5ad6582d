#pragma once

#include <string>
#include <vector>

#include "controller/plan/conditions.h"
#include "controller/plan/pass.h"
#include "controller/plan/plan.h"

namespace lockstep::plan {

// One job in one situation, for tests of the policies: holds the input of plan() and calls it.
struct Scene {
  Observed seen;
  Limits limits;
  RoundChoice choose = members_of_round;
  TimePoint now{std::chrono::hours(10)};

  // A newly created, valid job of `nodes` nodes whose pods the server accepts.
  explicit Scene(int64_t nodes = 2);

  TrainingJobStatus& status() { return seen.job.status; }
  // Adds the member's pod, Running at 10.0.0.<index + 1>.
  PodView& add_pod(int64_t index, int64_t incarnation = 1);
  // Adds that node's agent with a report of the current round: its worker runs, in `phase`.
  AgentState& add_agent(int64_t index, WorkerPhase phase = WorkerPhase::kTraining);
  AgentState& agent(int64_t index);
  // Returns the view's report, which exists, for changes; other views keep theirs.
  static AgentState& edit(AgentView& view);
  // Admits the members, runs their pods and records round `round`. Agents have not reported yet.
  void form(int64_t round = 1);
  // Forms the round (form()) and has every node train.
  void train(int64_t round = 1);
  void fail_worker(int64_t index, int64_t exit_code, double seconds_ago,
                   std::string reason = "Error");
  // Advances both clocks.
  void advance(Duration by);

  Plan plan() const { return plan_by(all_policies(), seen, now, limits, choose); }
  // Applies the plan's status write, as the server would. Returns whether there was one.
  bool settle();
};

// Returns the plan's actions of type T.
template <class T>
std::vector<T> only(const Plan& plan) {
  std::vector<T> found;
  for (const Action& action : plan.actions) {
    if (const T* match = std::get_if<T>(&action)) found.push_back(*match);
  }
  return found;
}

// Returns the Pod as a document.
inline Json body_of(const CreatePod& pod) {
  return Json::parse(pod.text());
}

// Returns whether the plan is a decision: a status write, possibly with events, and no other
// action.
bool is_decision(const Plan& plan);
// Returns the condition of that type, or an empty one.
const Condition& condition(const TrainingJobStatus& status, const char* type);
// Returns the status that the plan writes; without a write, the current one.
TrainingJobStatus written(const Scene& scene, const Plan& plan);

}  // namespace lockstep::plan
