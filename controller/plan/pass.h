#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "controller/plan/plan.h"

namespace lockstep {

// One call of plan(): what was seen, and what has come of it so far. Policies share it.
struct Pass {
  const Observed& seen;
  const TimePoint now;
  const Limits& limits;

  TrainingJobStatus status{};  // as it is to become
  Plan plan{};
  std::vector<EmitEvent> events{};  // of a decision; they follow its status write

  std::vector<int64_t> members{};         // incarnation by node index, as status has it
  std::vector<const PodView*> current{};  // by node index: the member's pod, nullptr if unseen
  // So many members, from the first on, the present round has or, before it is formed, needs: all
  // but those that spec.nodes has added since, who join with the next round once all of them run.
  size_t round_size = 0;

  const TrainingJob& job() const { return seen.job; }
  const TrainingJobSpec& spec() const { return seen.job.spec; }
  // The round's assignment is fixed; else pods are still being gathered for the next one.
  bool formed() const { return !status.worldHash.empty(); }
  const AgentView* agent(const PodView* pod) const;
  std::span<const PodView* const> in_round() const { return {current.data(), round_size}; }
  bool is_in_round(int64_t index) const { return index < static_cast<int64_t>(round_size); }
  // The agent's last report, if it is of the current round and hash.
  const AgentState* report(const PodView* pod) const;
  // Its last words about this job, of whatever round.
  const AgentState* words(const PodView* pod) const;
  void requeue(TimePoint at);
  void act(Action action) { plan.actions.push_back(std::move(action)); }
  void event(bool warning, std::string reason, std::string message) {
    events.push_back({warning, std::move(reason), std::move(message)});
  }
};

// All workers of the agent's round ended well, whatever it is doing since.
bool has_completed(const AgentState& state);

Pass make_pass(const Observed& observed, TimePoint now, const Limits& limits);

enum class Verdict {
  kNext,     // nothing to say: the next policy
  kActed,    // actions were added; status is brought up to date, no decision may follow
  kDecided,  // a decision stands in `status`; it alone is written
  kLeave,    // hands off: nothing is written either
};

// The policies, in the order in which they are asked. Each says why in plan.why when it stops.
Verdict deletion(Pass& pass);    // being deleted, or managed by somebody else from the start
Verdict ending(Pass& pass);      // Complete and Failed are for ever; the pods are sent home
Verdict completion(Pass& pass);  // right after ending: what comes after the work changes nothing
Verdict validation(Pass& pass);
Verdict suspension(Pass& pass);
Verdict deadline(Pass& pass);
Verdict membership(Pass& pass);  // an incarnation for each node index
Verdict failure(Pass& pass);
Verdict placement(Pass& pass);   // pods as the members say
Verdict assignment(Pass& pass);  // forms the round, then tells the agents

using Policy = Verdict (*)(Pass&);
std::span<const Policy> all_policies();  // in that order

// Conditions and numbers that follow from what is seen. Always last.
void derive_status(Pass& pass);

// plan() with these policies instead: the simulation plants wrong ones.
Plan plan_by(std::span<const Policy> policies, const Observed& observed, TimePoint now,
             const Limits& limits);

}  // namespace lockstep
