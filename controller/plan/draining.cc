#include "controller/plan/draining.h"

#include <algorithm>
#include <set>

#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "controller/plan/damage.h"
#include "controller/plan/failure_rules.h"
#include "controller/plan/ledger.h"
#include "controller/plan/names.h"
#include "controller/plan/round_nodes.h"
#include "controller/plan/servers.h"
#include "controller/plan/silence.h"
#include "controller/plan/world.h"

namespace lockstep::plan {
namespace {

// The state of one node while its round is being stopped.
enum class Leaving {
  kRuns,       // some rank trains or saves
  kLeft,       // all ranks have left with kExitStopped
  kCompleted,  // all ranks have exited successfully
  kGone,       // the pod is not in the cache
  kBroken,     // nothing to wait for: not trained yet, failed, silent, or out of time
};

// When the time of a terminating pod is over, by the wall clock; nullopt if that is not known.
std::optional<Duration> time_left(const Pass& pass, const PodView& pod) {
  if (!pod.gone_by) return std::nullopt;
  return *pod.gone_by - pass.seen.wall_now;
}

bool is_out_of_time(const Pass& pass, const PodView& pod) {
  return pod.terminating && time_left(pass, pod).value_or(Duration{0}) <= Duration{0};
}

// An agent exits with this code if all of its ranks did.
Leaving leaving_of_ended(const PodView& pod) {
  if (pod.ended_well()) return Leaving::kCompleted;
  return pod.exit_code == kExitStopped ? Leaving::kLeft : Leaving::kBroken;
}

// A rank that SIGTERM killed has not trained yet.
bool has_left(const WorkerState& worker) {
  return !worker.running && worker.exit_code == kExitStopped && worker.signal == 0;
}

bool is_broken(const WorkerState& worker) {
  if (worker.running) return worker.phase < WorkerPhase::kTraining;
  return !has_left(worker) && worker.reason != "Completed";
}

Leaving leaving_of(const AgentState& state) {
  if (state.workers.empty() || std::ranges::any_of(state.workers, is_broken)) {
    return Leaving::kBroken;
  }
  const auto count = [&](auto what) { return std::ranges::count_if(state.workers, what); };
  const auto all = std::ssize(state.workers);
  if (count([](const WorkerState& worker) { return worker.running; }) > 0) {
    return state.phase == "Exiting" ? Leaving::kBroken : Leaving::kRuns;  // it kills them now
  }
  const auto completed =
      count([](const WorkerState& worker) { return worker.reason == "Completed"; });
  return completed == 0     ? Leaving::kLeft
         : completed == all ? Leaving::kCompleted
                            : Leaving::kBroken;
}

// Returns the last report of a member whose pod has just gone: this process forgets it soon.
const AgentState* report_of_gone(const Pass& pass, int64_t node) {
  for (const auto& [uid, agent] : pass.seen.agents) {
    if (!agent.state || agent.state->job_uid != pass.job().metadata.uid) continue;
    const AgentState& state = *agent.state;
    const bool is_current = state.round == pass.status.round && state.hash == pass.status.worldHash;
    const bool is_its =
        state.node_index == node && state.incarnation == pass.members[static_cast<size_t>(node)];
    if (is_current && is_its) return &state;
  }
  return nullptr;
}

Leaving leaving_of(const Pass& pass, int64_t node) {
  const PodView* pod = pass.current[static_cast<size_t>(node)];
  if (pod == nullptr) {
    const AgentState* last = report_of_gone(pass, node);
    return last != nullptr && leaving_of(*last) == Leaving::kLeft ? Leaving::kLeft : Leaving::kGone;
  }
  if (pod->finished() || pod->exit_code) return leaving_of_ended(*pod);
  const AgentView* agent = pass.agent(pod);
  if (agent == nullptr && (pod->phase != "Running" || pod->ip.empty())) return Leaving::kBroken;
  const AgentState* state = pass.current_report(pod);
  const bool has_answered = agent != nullptr && agent->state;
  if (has_answered && state == nullptr) return Leaving::kBroken;  // it runs another round
  const Leaving leaving = state == nullptr ? Leaving::kRuns : leaving_of(*state);
  if (leaving != Leaving::kRuns) return leaving;
  const bool is_silent =
      agent != nullptr && pass.now - agent->last_heard >= healthy_silence_limit(pass);
  return is_silent || is_out_of_time(pass, *pod) ? Leaving::kBroken : Leaving::kRuns;
}

bool has_stopped_rank(const AgentState* state) {
  return state != nullptr && std::ranges::any_of(state->workers, has_left);
}

// Returns whether something shows that the ranks were asked to stop. A pod that is gone does not.
bool is_asked(const Pass& pass) {
  const std::set<int64_t> have_left = nodes_that_left(pass);
  return std::ranges::any_of(pass.in_round(), [&](const PodView* pod) {
    if (pod == nullptr || have_left.contains(pod->node_index)) return false;
    const AgentState* state = pass.current_report(pod);
    return pod->terminating || pod->exit_code == kExitStopped || has_stopped_rank(state) ||
           (state != nullptr && state->phase == "Stopping");
  });
}

std::string pod_of_node(const FailureStatus& lost) {
  return "the pod of node index " + std::to_string(lost.nodeIndex) +
         (lost.node.empty() ? "" : " on " + lost.node) + " is being stopped: " + lost.reason;
}

// Returns the pod that is known to be stopped, as if it were a failure.
std::optional<FailureStatus> stopped_pod(const Damage& damage) {
  const bool is_pod = damage.culprit && damage.ends_round && damage.culprit->rank < 0;
  return is_pod ? damage.culprit : std::nullopt;
}

Verdict begin_drain(Pass& pass) {
  const std::optional<FailureStatus> stopped = stopped_pod(assess_damage(pass));
  const std::string message = (stopped ? pod_of_node(*stopped) : "ranks were asked to stop") +
                              "; the ranks save a checkpoint and leave";
  pass.set(kDraining, true, "PodStopping", message);
  pass.event(false, kDraining, message);
  pass.plan.why = "a pod is being stopped: its round saves a checkpoint";
  return Verdict::kDecided;
}

// Returns what is left of the time that all pods of the round get, from when the first one was seen
// to be stopped. It bounds the wait for pods that are not being stopped themselves.
Duration drain_left(const Pass& pass) {
  const Result<WallTime> since =
      wall_time_from_rfc3339(find_condition(pass.status, kDraining)->lastTransitionTime);
  if (!since.ok()) return Duration{0};
  return *since + std::chrono::seconds(pod_grace_seconds(pass.spec())) - pass.seen.wall_now;
}

Verdict wait_for_ranks(Pass& pass) {
  if (!is_true(pass.status, kDraining)) return begin_drain(pass);
  const Duration left = drain_left(pass);
  if (left <= Duration{0}) return Verdict::kNext;
  pass.plan.why = "a pod is being stopped: waiting for the ranks to save and leave";
  pass.requeue(pass.now + left);
  for (const int64_t node : counted_nodes(pass)) {
    if (leaving_of(pass, node) != Leaving::kRuns) continue;
    const PodView* pod = pass.current[static_cast<size_t>(node)];
    if (pod->terminating) pass.requeue(pass.now + *time_left(pass, *pod));
    const AgentView* agent = pass.agent(pod);
    if (agent != nullptr) pass.requeue(agent->last_heard + healthy_silence_limit(pass));
  }
  return Verdict::kActed;
}

int64_t step_of_round(const Pass& pass) {
  int64_t step = 0;
  for (const PodView* pod : pass.in_round()) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr) continue;
    for (const WorkerState& worker : state->workers) step = std::max(step, worker.step);
  }
  return step;
}

// Notes what the last report of rank 0 says that it saved, if its pod is gone. If the pod is still
// there, derive_status() does that.
void note_saved(Pass& pass) {
  const int64_t node = pass.round_nodes.front();
  if (pass.current[static_cast<size_t>(node)] != nullptr) return;
  const AgentState* last = report_of_gone(pass, node);
  if (last != nullptr && last->last_checkpoint) pass.status.lastCheckpoint = last->last_checkpoint;
}

// All ranks of the round have left. Returns whether the step is saved, which rank 0 knows: if its
// pod is gone too, the status may tell.
bool is_saved(const Pass& pass) {
  const Leaving of_rank_0 = leaving_of(pass, pass.round_nodes.front());
  if (of_rank_0 != Leaving::kGone) return of_rank_0 == Leaving::kLeft;
  const auto& saved = pass.status.lastCheckpoint;
  return saved && saved->step > 0 && saved->step >= step_of_round(pass);
}

// Returns when the last rank left.
TimePoint last_left_at(const Pass& pass) {
  TimePoint last{};
  for (const PodView* pod : pass.in_round()) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr) continue;
    for (const WorkerState& worker : state->workers) {
      const Duration ago = from_seconds(failed_seconds_ago(*state, worker));
      last = std::max(last, pass.agent(pod)->state_at - ago);
    }
  }
  return last;
}

// Ranks have left, but no pod is known to be stopped. The news of that may be on its way.
Verdict wait_for_cause(Pass& pass) {
  const TimePoint until = last_left_at(pass) + pass.limits.culprit_wait;
  if (pass.now >= until) return Verdict::kNext;
  pass.plan.why = "all ranks were asked to stop; waiting for the pod that is being stopped";
  pass.requeue(until);
  return Verdict::kActed;
}

Verdict confirm(Pass& pass, const std::vector<std::string>& unseen) {
  pass.plan.why = "the pod of a member that left is not in the cache";
  for (const std::string& name : unseen) pass.act(ConfirmPod{.name = name});
  return Verdict::kActed;
}

// Nothing failed: neither restarts nor the failures count it, and no backoff follows.
Verdict end_drain(Pass& pass, const Damage& damage, const FailureStatus& stopped) {
  const int64_t step = step_of_round(pass);
  const std::string message = pod_of_node(stopped) + "; the ranks saved a checkpoint and left" +
                              (step > 0 ? " at step " + std::to_string(step) : "");
  close_interval(pass.status, pass.seen.wall_now);
  pass.set(kDraining, false, "Saved");
  pass.set(kRunning, false, kDrained);
  pass.set(kRestarting, true, kDrained, message);
  pass.event(false, kDrained, message);
  pass.plan.why = "all ranks saved and left: the next round begins with another pod";
  replace_lost(pass, damage.lost);
  begin_round(pass, next_round(pass));
  return Verdict::kDecided;
}

// All ranks have left. A rule of the job about such a pod decides in place of this policy.
Verdict all_left(Pass& pass) {
  const Damage damage = assess_damage(pass);
  if (!damage.unseen.empty()) return confirm(pass, damage.unseen);
  if (!is_saved(pass)) return Verdict::kNext;
  const std::optional<FailureStatus> stopped = stopped_pod(damage);
  if (!stopped) return wait_for_cause(pass);
  if (rule_for(pass.spec().failure.rules, *stopped)) return Verdict::kNext;
  return end_drain(pass, damage, *stopped);
}

}  // namespace

bool was_drained(const TrainingJobStatus& status) {
  return is_true(status, kRestarting) && find_condition(status, kRestarting)->reason == kDrained;
}

bool stores_checkpoints(const TrainingJobSpec& spec) {
  return spec.train && !spec.checkpoint.path.empty();
}

bool saves_when_stopped(const Pass& pass) {
  return pass.formed() && stores_checkpoints(pass.spec());
}

// Waits for the ranks of a round of which a pod is deleted, drained or preempted: they save a
// checkpoint at the same step and leave, and only then the next round begins. Leaves the round to
// the failure policy if a rank can't do so: it failed, is silent, or its pod's time is over.
Verdict draining(Pass& pass) {
  if (!saves_when_stopped(pass)) return Verdict::kNext;
  if (!is_true(pass.status, kDraining) && !is_asked(pass)) return Verdict::kNext;
  note_saved(pass);
  if (misses_worker(pass)) return Verdict::kNext;
  const std::vector<int64_t> nodes = counted_nodes(pass);
  const auto any = [&](Leaving leaving) {
    return std::ranges::any_of(nodes,
                               [&](int64_t node) { return leaving_of(pass, node) == leaving; });
  };
  if (any(Leaving::kBroken)) return Verdict::kNext;
  if (any(Leaving::kRuns)) return wait_for_ranks(pass);
  const bool have_left = any(Leaving::kLeft) && !any(Leaving::kCompleted);
  return have_left ? all_left(pass) : Verdict::kNext;
}

}  // namespace lockstep::plan
