#include <algorithm>
#include <iterator>

#include "common/api/worker_config.h"
#include "common/base/utf8.h"
#include "controller/plan/backoff.h"
#include "controller/plan/conditions.h"
#include "controller/plan/damage.h"
#include "controller/plan/failure_rules.h"
#include "controller/plan/ledger.h"
#include "controller/plan/never_started.h"
#include "controller/plan/pass.h"
#include "controller/plan/round_nodes.h"
#include "controller/plan/servers.h"
#include "controller/plan/silence.h"
#include "controller/plan/straggler.h"
#include "controller/plan/world.h"

namespace lockstep::plan {
namespace {

// Returns the last `bytes` of the text, from the beginning of a line if there is one.
std::string tail(const std::string& text, size_t bytes) {
  std::string_view rest = utf8_tail(text, bytes);
  if (rest.size() == text.size()) return text;
  const size_t line = rest.find('\n');
  if (line != std::string_view::npos && line + 1 < rest.size()) rest.remove_prefix(line + 1);
  return std::string(rest);
}

// Returns the step that training had reached. Progress in status is from an earlier round until all
// ranks train. A round that ended before its first step lost nothing beyond the previous failure.
int64_t step_reached(const Pass& pass) {
  const bool is_known = pass.status.progress && is_true(pass.status, kRunning);
  int64_t step = is_known ? pass.status.progress->step.value_or(0) : 0;
  for (const PodView* pod : pass.current) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr || !state->progress) continue;
    step = std::max(step, state->progress->step.value_or(0));
  }
  const auto& previous = pass.status.lastFailure;
  return previous && previous->resumedStep < 0 ? std::max(step, previous->step) : step;
}

// Without steps, elapsed time is the only visible progress.
bool ran_for_long(const Pass& pass) {
  const Condition* running = find_condition(pass.status, kRunning);
  if (pass.spec().train || pass.status.progress || running == nullptr) return false;
  const Result<WallTime> since = wall_time_from_rfc3339(running->lastTransitionTime);
  return running->status == "True" && since.ok() &&
         pass.seen.wall_now - *since >= pass.limits.attempt_max;
}

double whole_ms(Duration duration) {
  return static_cast<double>(std::chrono::round<std::chrono::milliseconds>(duration).count()) /
         1000;
}

// How long ago a failure happened: until this process could know of it, and since then.
struct Ago {
  Duration detect{0};
  Duration decide{0};
};

// A lost pod's end is known from the pod itself or from its agent's silence. Other failures are
// reported by the agent.
Ago ago_of(const Pass& pass, const FailureStatus& failure) {
  constexpr Duration kMost = std::chrono::hours(1);
  const auto index = static_cast<size_t>(failure.nodeIndex);
  const PodView* pod = index < pass.current.size() ? pass.current[index] : nullptr;
  if (pod == nullptr) return {};
  if (failure.rank < 0 && pod->ended_at) {
    return {.detect = std::clamp(pass.seen.wall_now - *pod->ended_at, Duration{0}, kMost)};
  }
  const AgentView* agent = pass.agent(pod);
  if (agent != nullptr && failure.reason == kAgentSilent) {
    return {.detect = pass.now - silent_since(pass, *pod)};
  }
  const AgentState* state = pass.current_report(pod);
  if (state == nullptr) return {};
  double seconds_ago = state->failed_seconds_ago;
  for (const WorkerState& worker : state->workers) {
    if (worker.rank == failure.rank) seconds_ago = failed_seconds_ago(*state, worker);
  }
  if (seconds_ago <= 0) return {};
  return {.detect = from_seconds(std::min(seconds_ago, to_seconds(kMost))),
          .decide = pass.now - agent->state_at};
}

void shorten(Ago& ago, Duration most) {
  const Duration excess = ago.detect + ago.decide - std::max(most, Duration{0});
  if (excess <= Duration{0}) return;
  const Duration of_detect = std::min(excess, ago.detect);
  ago.detect -= of_detect;
  ago.decide -= excess - of_detect;
}

// Returns whether the agent has not been heard since that failure, at `then`. A message may have
// been in flight. If this process has never heard it, it began to listen later than that, or the
// pod was made since.
bool is_unheard_since(const Pass& pass, const PodView* pod, const FailureStatus& failure,
                      WallTime then) {
  const AgentView* agent = pass.agent(pod);
  if (agent == nullptr) return false;
  const bool was_there = pod->created_in_round && *pod->created_in_round < failure.round;
  if (was_there && !agent->state && !agent->refuses_token) return true;
  const WallTime heard_at = pass.seen.wall_now - (pass.now - agent->last_heard);
  return heard_at <= then + pass.limits.failure_order_resolution;
}

// Returns the newest failure in status that repeats none (decide()), if no round has trained from
// it until now: each began the next one, or none has told from where it resumed. A user may have
// ended rounds in between.
const FailureStatus* newest_cause(const TrainingJobStatus& status) {
  int64_t next_round = status.round;
  for (size_t i = status.failures.size(); i-- > 0;) {
    const FailureStatus& failure = status.failures[i];
    if (failure.round + 1 != next_round && failure.resumedStep >= 0) return nullptr;
    next_round = failure.round;
    if (i == 0) return failure.number == 1 ? &failure : nullptr;  // older ones are not kept
    const FailureStatus& before = status.failures[i - 1];
    const bool repeats =
        failure.attempt == before.attempt && failure.furthestStep == before.furthestStep;
    if (!repeats) return &failure;
  }
  return nullptr;
}

// Returns whether this is the failure before once more, such as a cut of the power: ranks that lost
// a peer report it before silence counts, perhaps also those of the next round, which never had the
// node. Each pod that was there is excused once, so that nothing restarts without end.
bool is_of_last_failure(const Pass& pass, const FailureStatus& failure) {
  const FailureStatus* cause = newest_cause(pass.status);
  if (cause == nullptr) return false;
  const Result<WallTime> then = wall_time_from_rfc3339(cause->time);
  // A time in the future is from before the clock was set back, and says nothing about the order.
  if (!then.ok() || *then > pass.seen.wall_now) return false;
  const bool is_by_peers =
      pass.spec().train && (failure.reason == kSuspected || failure.exitCode == kExitPeerLost);
  return std::ranges::any_of(pass.in_round(), [&](const PodView* pod) {
    const bool is_meant = is_by_peers || (failure.reason == kAgentSilent && pod != nullptr &&
                                          pod->node_index == failure.nodeIndex);
    return is_meant && is_unheard_since(pass, pod, *cause, *then);
  });
}

FailureStatus describe(const Pass& pass, const Damage& damage) {
  FailureStatus failure = *damage.culprit;
  failure.message = tail(failure.message, pass.limits.log_tail_bytes);
  failure.round = pass.status.round;
  failure.generation = pass.job().metadata.generation;
  failure.step = step_reached(pass);
  failure.furthestStep = failure.step;
  Ago ago = ago_of(pass, failure);
  if (const auto end = end_of_newest(pass.status)) shorten(ago, pass.seen.wall_now - *end);
  failure.time = rfc3339_micro(pass.seen.wall_now - ago.detect - ago.decide);
  failure.recovery.detectSeconds = whole_ms(ago.detect);
  failure.recovery.decideSeconds = whole_ms(ago.decide);
  const auto& previous = pass.status.lastFailure;
  if (previous && failure.step <= previous->furthestStep && !ran_for_long(pass)) {
    failure.attempt = previous->attempt + 1;
    failure.furthestStep = previous->furthestStep;
  }
  return failure;
}

std::string sentence(const FailureStatus& failure) {
  std::string text =
      failure.rank >= 0 ? "rank " + std::to_string(failure.rank) + " of " : "the pod of ";
  text += "node index " + std::to_string(failure.nodeIndex);
  if (!failure.node.empty()) text += " on " + failure.node;
  text += " failed in round " + std::to_string(failure.round) + ": " + failure.reason;
  if (failure.exitCode >= 0) text += ", exit code " + std::to_string(failure.exitCode);
  const std::string signal = signal_name(failure.exitCode - 128);
  if (!signal.empty() && failure.reason != "Error") text += " (" + signal + ")";
  return text;
}

Verdict fail_job(Pass& pass, FailureStatus failure, const char* reason, const std::string& why) {
  failure.action = "Fail";
  std::string message = sentence(failure) + "; " + why;
  const char* const what = failure.reason == kStraggler ? "; " : "; the end of its log:\n";
  if (!failure.message.empty()) message += what + failure.message;
  failure.recovery = {};
  record_failure(pass.status, std::move(failure));
  pass.set(kRunning, false, reason, "");
  pass.set(kRestarting, false, reason, "");
  pass.set(kFailed, true, reason, message);
  pass.status.completionTime = rfc3339(pass.seen.wall_now);
  pass.event(true, reason, message);
  pass.plan.why = "the job fails and is not restarted";
  return Verdict::kDecided;
}

struct Restart {
  std::vector<int64_t> lost;  // node indices whose pod is recreated
  bool counts = true;         // against maxRestarts
  std::string because;        // the rule that decided it; empty if none did
};

Verdict restart(Pass& pass, FailureStatus failure, const Restart& how) {
  failure.action = how.lost.empty() ? "RestartInPlace" : "RecreatePod";
  std::string message = sentence(failure);
  if (!how.because.empty()) message += "; " + how.because;
  failure.recovery.waitSeconds = whole_ms(restart_wait(failure, pass.seen.wall_now, pass.limits));
  record_failure(pass.status, std::move(failure));
  const FailureStatus& recorded = *pass.status.lastFailure;
  if (how.counts) ++pass.status.restarts;
  pass.set(kRunning, false, recorded.reason, "");
  pass.set(kRestarting, true, recorded.action, message);
  pass.event(true, recorded.action, message);
  return Verdict::kDecided;
}

bool is_final(const Pass& pass, const FailureStatus& failure) {
  return pass.spec().train && is_repeated_by_a_restart(failure.exitCode);
}

// Returns why is_final(): no restart helps.
std::string why_final(const Pass& pass, const FailureStatus& failure) {
  if (failure.exitCode != kExitFenced) return "a restart would fail the same way";
  return "spec.checkpoint.path: another job, or a newer round of this one, owns " +
         pass.spec().checkpoint.path + "; give each job its own folder";
}

void add_node(const Pass& pass, int64_t index, std::vector<int64_t>& lost) {
  const bool is_member = index >= 0 && index < std::ssize(pass.members);
  if (!is_member || std::find(lost.begin(), lost.end(), index) != lost.end()) return;
  lost.push_back(index);
}

// Silence causes no event, nor does a pod that does not start: requeues the plan for when it would
// notice them.
void requeue_for_timeouts(Pass& pass) {
  for (const PodView* pod : pass.current) {
    const std::optional<Duration> left = pending_left(pass, pod);
    if (left && *left > Duration{0}) pass.requeue(pass.now + *left);
    const bool works = pod != nullptr && pass.formed() && pass.is_in_round(pod->node_index);
    if (!works && (pod == nullptr || !pass.spec().elastic)) continue;
    const AgentView* agent = pass.agent(pod);
    if (agent == nullptr) continue;
    const TimePoint silent = silent_at(pass, *pod, current_silence_limit(pass));
    if (works || silent > pass.now) pass.requeue(silent);  // else it is no pod to give up
    if (!works) continue;
    if (!pass.seen.suspect_own_network) continue;
    pass.requeue(std::max(agent->last_heard + base_silence_limit(pass),
                          pass.now + pass.limits.suspicion_recheck));
  }
}

// Returns whether, counting this failure, its node has had enough of them to be avoided from now
// on.
bool is_on_bad_node(const Pass& pass, const FailureStatus& failure) {
  TrainingJobStatus with_it = pass.status;
  record_failure(with_it, failure);
  const auto nodes = nodes_to_avoid(with_it, pass.spec().failure.avoidNodes);
  return std::find(nodes.begin(), nodes.end(), failure.node) != nodes.end();
}

// Returns how often in a row pods of this node index have been lost outside of this round, counting
// this loss: their replacement backs off.
int64_t attempts_of_place(const Pass& pass, const FailureStatus& failure) {
  const auto& last = pass.status.lastFailure;
  const bool is_again = last && last->round == failure.round && last->rank < 0 &&
                        last->nodeIndex == failure.nodeIndex;
  return is_again ? last->attempt + 1 : 1;
}

// Returns whether the round has not told yet from where it resumed after the newest failure.
bool is_yet_to_resume(const TrainingJobStatus& status) {
  return status.lastFailure && status.lastFailure->resumedStep < 0;
}

// Applies the job's rules to the failure, else the default action.
Verdict decide(Pass& pass, Damage damage) {
  FailureStatus failure = describe(pass, damage);
  const FailureSpec& spec = pass.spec().failure;
  const std::optional<size_t> rule = rule_for(spec.rules, failure);
  const std::string action = rule ? spec.rules[*rule].action : "";
  Restart how{.lost = damage.lost, .counts = action != "Ignore", .because = ""};
  if (rule)
    how.because = "spec.failure.rules[" + std::to_string(*rule) + "] matches: action " + action;
  if (!rule && is_of_last_failure(pass, failure)) {
    how.counts = false;
    how.because = "this is the failure before once more, and does not count";
    failure.attempt = pass.status.lastFailure->attempt;
    failure.furthestStep = pass.status.lastFailure->furthestStep;
  }
  const bool is_outside = has_places(pass) && !pass.is_in_round(failure.nodeIndex);
  const bool goes_on_without = pass.spec().elastic || is_outside;
  if (!rule && goes_on_without && pass.formed() && !damage.ends_round) {
    how.counts = false;
    how.because = "the round goes on without it, so this does not count";
    failure.attempt = attempts_of_place(pass, failure);
  }
  if (!rule && !how.lost.empty() && were_gone_before(pass, how.lost)) {
    how.counts = false;
    how.because = "its process had failed before, so this does not count";
    failure.attempt = pass.status.lastFailure->attempt;
  }
  if (action == "Fail") return fail_job(pass, std::move(failure), "FailureRule", how.because);
  if (!rule && is_final(pass, failure)) {
    return fail_job(pass, std::move(failure), "NotRetryable", why_final(pass, failure));
  }
  const bool moves = !rule && is_on_bad_node(pass, failure);
  const std::string why = rule ? "" : why_never_started(pass, failure, moves);
  if (!why.empty()) return fail_job(pass, std::move(failure), "NeverStarted", why);
  if (how.counts && pass.status.restarts >= spec.maxRestarts) {
    return fail_job(pass, std::move(failure), "TooManyRestarts",
                    "no restarts are left (spec.failure.maxRestarts: " +
                        std::to_string(spec.maxRestarts) + ")");
  }
  const bool is_of_pod = pass.spec().train && is_repeated_in_its_pod(failure.exitCode);
  if (action == "RecreatePod" || moves || (!rule && is_of_pod)) {
    add_node(pass, failure.nodeIndex, how.lost);
  }
  const bool are_spared = can_go_on_without_pods(pass, how.lost);
  if (are_spared || (how.lost.empty() && can_go_on_without(pass, failure))) {
    const std::string why_it_goes_on =
        are_spared ? lose_pods(pass, how.lost) : lose_process(pass, failure);
    damage.ends_round = false;
    how.because += (how.because.empty() ? "" : "; ") + why_it_goes_on;
  }
  const bool goes_on = pass.formed() && !damage.ends_round;
  if (goes_on && !is_yet_to_resume(pass.status)) failure.resumedStep = failure.step;
  const Verdict verdict = restart(pass, std::move(failure), how);
  replace_lost(pass, how.lost);
  if (damage.ends_round) begin_round(pass, next_round(pass));
  if (pass.formed()) note_pods(pass.status, pass.seen.wall_now);
  pass.plan.why = damage.ends_round ? "a failure requires the next round"
                                    : "a failure that the round goes on after";
  return verdict;
}

}  // namespace

Verdict failure(Pass& pass) {
  Damage damage = assess_damage(pass);
  if (!damage.culprit && !damage.unseen.empty()) {
    pass.plan.why = "a member's pod is not in the cache";
    for (const std::string& name : damage.unseen) pass.act(ConfirmPod{.name = name});
    return Verdict::kActed;
  }
  if (!damage.culprit) {
    damage.culprit = lifeless_server(pass);
    damage.is_new = damage.culprit.has_value();
  }
  if (!damage.culprit) {
    damage.culprit = find_straggler(pass);
    damage.is_new = damage.ends_round = damage.culprit.has_value();
  }
  if (!damage.culprit) {
    requeue_for_timeouts(pass);
    return Verdict::kNext;
  }
  if (damage.wait_for_culprit_until) {
    pass.plan.why = "workers lost a peer; waiting for the failed rank to report";
    pass.requeue(*damage.wait_for_culprit_until);
    return Verdict::kActed;
  }
  if (!damage.is_new) {
    pass.plan.why = "another pod of the failed round was lost";
    replace_lost(pass, damage.lost);
    return Verdict::kDecided;
  }
  return decide(pass, damage);
}

}  // namespace lockstep::plan
