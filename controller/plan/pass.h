#pragma once

#include <algorithm>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "controller/plan/plan.h"

namespace lockstep::plan {

struct Pass;

// Returns the node indices that the next round is to have, ascending: at least one if the job has
// members, and at least one of a round that is formed. It forms once all of these pods run; until
// then a formed round goes on. Nodes that it leaves out keep their pods, but nothing waits for
// them. Pure.
using RoundChoice = std::vector<int64_t> (*)(const Pass&);
// This version's choice: all members, or with spec.elastic those of elastic_nodes().
std::vector<int64_t> members_of_round(const Pass& pass);

// One call of plan(): what was observed, and the result so far. Shared by the policies.
struct Pass {
  const Observed& seen;
  const TimePoint now;
  const Limits& limits;

  TrainingJobStatus status{};  // the status to write
  Plan plan{};
  std::vector<EmitEvent> events{};  // of a decision; emitted after its status write

  std::vector<int64_t> members{};          // incarnation by node index, as in status
  std::vector<const PodView*> current{};   // by node index: the member's pod, nullptr if unseen
  std::vector<const AgentView*> agents{};  // of these, as they were when the pass began
  // Node indices that the current round has or, before it is formed, needs; ascending, by place.
  // Excludes members that spec.nodes has added since: they join in the next round, once all of them
  // run.
  std::vector<int64_t> round_nodes{};
  RoundChoice choose = members_of_round;

  const TrainingJob& job() const { return seen.job; }
  const TrainingJobSpec& spec() const { return seen.job.spec; }
  // True if the round's assignment is fixed; otherwise pods are being gathered for the next round.
  bool formed() const { return !status.worldHash.empty(); }
  const AgentView* agent(const PodView* pod) const;  // nullptr if it is unknown
  // Returns the pods of these nodes; nullptr for one that is unseen. `indices` outlives the result.
  auto pods_of(const std::vector<int64_t>& indices) const {
    return std::views::transform(
        indices, [this](int64_t index) { return current[static_cast<size_t>(index)]; });
  }
  auto in_round() const { return pods_of(round_nodes); }  // by place
  bool is_in_round(int64_t index) const {
    return std::binary_search(round_nodes.begin(), round_nodes.end(), index);
  }
  // Returns the node index of the member of the round that has this rank; -1 if none has.
  int64_t node_of_rank(int64_t rank) const;
  // Returns the agent's last report if it is for the current round and hash.
  const AgentState* current_report(const PodView* pod) const;
  // Like current_report, and also for the last round of a suspended job: it has no hash any more,
  // but its ranks may still save.
  const AgentState* report_of_round(const PodView* pod) const;
  // Returns the longest abort and the longest start on any node of the round; nullopt unless all
  // nodes told.
  std::optional<RoundBeginning> slowest_beginning() const;
  // Returns the agent's last report about this job, for whatever round.
  const AgentState* last_report(const PodView* pod) const;
  void requeue(TimePoint at);
  void act(Action action) { plan.actions.push_back(std::move(action)); }
  // Sets a condition of the status, as of now (conditions.h). Returns whether it flipped, or is
  // new.
  bool set(const char* type, bool value, std::string reason, std::string message = "");
  void event(bool warning, std::string reason, std::string message) {
    events.push_back({warning, std::move(reason), std::move(message)});
  }
};

// Returns whether all workers of the agent's round exited successfully, whatever the agent does
// now.
bool has_completed(const AgentState& state);

Pass make_pass(const Observed& observed, TimePoint now, const Limits& limits,
               RoundChoice choose = members_of_round);

enum class Verdict {
  kNext,     // nothing to do: ask the next policy
  kActed,    // actions were added; status is updated, but no decision may follow
  kDecided,  // `status` holds a decision; it alone is written
  kLeave,    // the pass ends here; status is neither updated nor written
};

// The policies, in the order of evaluation. Each sets plan.why if it ends the pass.
Verdict deletion(Pass& pass);    // the job is deleted, or another controller manages it
Verdict ending(Pass& pass);      // Complete and Failed are final; asks the pods to exit
Verdict completion(Pass& pass);  // directly after ending: nothing undoes finished work
Verdict validation(Pass& pass);
Verdict suspension(Pass& pass);
Verdict deadline(Pass& pass);
Verdict membership(Pass& pass);  // gives each node index an incarnation
Verdict warning(Pass& pass);     // deletes pods that will be preempted, which begins a drain
Verdict draining(Pass& pass);    // directly before failure: a pod that is stopped may save first
Verdict failure(Pass& pass);
Verdict servers(Pass& pass);     // directly after failure: the views of servers
Verdict views(Pass& pass);       // before any pod is deleted or made: agents get these views
Verdict network(Pass& pass);     // directly before placement: the job's NetworkPolicy
Verdict placement(Pass& pass);   // makes the pods match the members
Verdict assignment(Pass& pass);  // forms the round, then sends it to the agents

using Policy = Verdict (*)(Pass&);
std::span<const Policy> all_policies();  // in the order above

// Derives conditions and numbers from what was observed. Always runs last.
void derive_status(Pass& pass);

// As plan(), with these policies instead: the simulation injects wrong ones, and rounds that leave
// out nodes.
Plan plan_by(std::span<const Policy> policies, const Observed& observed, TimePoint now,
             const Limits& limits, RoundChoice choose = members_of_round);

}  // namespace lockstep::plan
