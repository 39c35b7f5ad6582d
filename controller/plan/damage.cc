#include "controller/plan/damage.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <map>
#include <set>

#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "controller/plan/draining.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_failure.h"
#include "controller/plan/servers.h"
#include "controller/plan/silence.h"

namespace lockstep::plan {
namespace {

struct WorkerFailure {
  const PodView* pod = nullptr;
  const WorkerState* worker = nullptr;
  TimePoint at{};
  // Its exit code only reports that another worker failed or hangs.
  bool reports_peer_failure = false;
};

bool has_failed(const WorkerState& worker) {
  return !worker.running && (worker.exit_code != 0 || worker.reason == "StartError");
}

bool is_silent_for(const Pass& pass, const PodView& pod, Duration time) {
  return pass.agent(&pod) != nullptr && pass.now >= silent_at(pass, pod, time);
}

// Returns whether an elastic job gives up a pod that it has left out, or is about to leave out: its
// agent was heard, and is silent.
bool is_lost_outside_round(const Pass& pass, const PodView& pod) {
  const AgentView* agent = pass.agent(&pod);
  if (!pass.spec().elastic || agent == nullptr || !agent->state) return false;
  return pod.phase == "Running" && is_silent_for(pass, pod, current_silence_limit(pass));
}

// Returns why a member's pod can't go on, or nullptr.
const char* loss_of(const Pass& pass, const PodView& pod) {
  if (pod.phase == "Failed" || pod.terminating) return end_of_pod(pod);
  const bool works = pass.formed() && pass.is_in_round(pod.node_index);
  if (pod.ended_well()) return works ? nullptr : "PodEnded";
  if (pod.exit_code) return end_of_pod(pod);
  if (!works) return is_lost_outside_round(pass, pod) ? kAgentSilent : nullptr;
  if (is_silent_for(pass, pod, current_silence_limit(pass))) return kAgentSilent;
  const AgentState* state = pass.current_report(&pod);
  return state != nullptr && is_being_stopped(*state) ? "PodStopped" : nullptr;
}

// Returns why the pod did not start in time, or nullptr. As soon as one pod is overdue, pods that
// have used up half of their time count as overdue too, so that one shortage is one failure.
const char* overdue_of(const Pass& pass, const PodView& pod, bool any_is_overdue) {
  const std::optional<Duration> left = pending_left(pass, &pod);
  if (!left) return nullptr;
  const Duration half = std::chrono::seconds(pass.spec().failure.pendingTimeoutSeconds) / 2;
  if (*left > (any_is_overdue ? half : Duration{0})) return nullptr;
  if (const char* trouble = start_trouble(pod)) return trouble;
  return pod.scheduled ? "PodPending" : "Unschedulable";
}

bool any_is_overdue(const Pass& pass) {
  return std::any_of(pass.current.begin(), pass.current.end(), [&](const PodView* pod) {
    const std::optional<Duration> left = pending_left(pass, pod);
    return left && *left <= Duration{0};
  });
}

FailureStatus lost_pod(int64_t index, const PodView* pod, const char* reason) {
  FailureStatus failure;
  failure.nodeIndex = index;
  failure.reason = reason;
  if (pod == nullptr) return failure;
  failure.node = pod->node_name;
  failure.exitCode = std::max<int64_t>(-1, pod->exit_code.value_or(-1));
  failure.message = pod->message;
  if (pod->phase == "Pending" && failure.message.empty()) {
    failure.message = pod->scheduled ? pod->waiting_message : pod->unscheduled_reason;
  }
  const bool adds = !pod->reason.empty() && pod->reason != "Error" && pod->reason != reason;
  if (adds) failure.message = pod->reason + (pod->message.empty() ? "" : ": ") + pod->message;
  return failure;
}

FailureStatus failed_worker(const WorkerFailure& source) {
  FailureStatus failure;
  failure.rank = source.worker->rank;
  failure.nodeIndex = source.pod->node_index;
  failure.node = source.pod->node_name;
  failure.exitCode = source.worker->exit_code;
  failure.reason = source.worker->reason;
  failure.message = source.worker->log_tail;
  return failure;
}

bool has_peer_failure_code(const WorkerState& worker) {
  return worker.exit_code == kExitPeerLost || worker.exit_code == kExitPeerHung;
}

std::vector<WorkerFailure> worker_failures(const Pass& pass) {
  std::vector<WorkerFailure> failures;
  for (const PodView* pod : pass.current) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr || is_being_stopped(*state)) continue;
    if (std::ranges::none_of(state->workers, has_failed)) continue;
    if (is_known_to_be_gone(pass, *pod, *state)) continue;
    const TimePoint reported_at = pass.agent(pod)->state_at;
    for (const WorkerState& worker : state->workers) {
      if (!has_failed(worker)) continue;
      failures.push_back(
          {.pod = pod,
           .worker = &worker,
           .at = reported_at - from_seconds(failed_seconds_ago(*state, worker)),
           .reports_peer_failure = pass.spec().train && has_peer_failure_code(worker)});
    }
  }
  // Workers that failed on their own come first, the earliest in front; ties stay in rank order.
  std::stable_sort(failures.begin(), failures.end(),
                   [](const WorkerFailure& a, const WorkerFailure& b) {
                     if (a.reports_peer_failure != b.reports_peer_failure)
                       return b.reports_peer_failure;
                     return a.at < b.at;
                   });
  return failures;
}

// Returns whether the failure began in this worker: a lost peer does not make programs die in these
// ways. SIGABRT is not among them, because an uncaught C++ exception ends in it.
bool is_certainly_its_own(const WorkerState& worker) {
  if (worker.reason == "OOMKilled" || worker.reason == "StartError") return true;
  constexpr int kOwnSignals[] = {SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS};
  return std::find(std::begin(kOwnSignals), std::end(kOwnSignals), worker.signal) !=
         std::end(kOwnSignals);
}

// Returns the failure that brought the others down. A command's exit codes do not tell, so this is
// the earliest failure. Among failures too close together to order, one that certainly began in its
// own worker wins.
const WorkerFailure& root_failure(const std::vector<WorkerFailure>& failures, const Pass& pass) {
  const WorkerFailure& earliest = failures.front();
  if (pass.spec().train || is_certainly_its_own(*earliest.worker)) return earliest;
  for (const WorkerFailure& other : failures) {
    if (other.at > earliest.at + pass.limits.failure_order_resolution) break;
    if (is_certainly_its_own(*other.worker)) return other;
  }
  return earliest;
}

const PodView* pod_of(const Pass& pass, int64_t node_index) {
  const auto index = static_cast<size_t>(node_index);
  return index < pass.current.size() ? pass.current[index] : nullptr;
}

// Returns whether no rank but `but_for` still runs, so that no culprit can still report.
bool all_workers_ended(const Pass& pass, int64_t but_for = -1) {
  for (const PodView* pod : pass.in_round()) {
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr) return false;
    for (const WorkerState& worker : state->workers) {
      if (worker.running && worker.rank != but_for) return false;
    }
  }
  return true;
}

// Returns the rank that most reports of a lost or hung peer blame; the first reporter if they blame
// nobody. A rank that hangs still runs, and the message names the collective it is missing from.
FailureStatus blamed_by(const Pass& pass, const std::vector<WorkerFailure>& peer_reports) {
  std::map<int64_t, int64_t> votes;
  for (const WorkerFailure& peer_report : peer_reports) {
    const int64_t suspect = peer_report.worker->suspect_rank;
    if (pass.node_of_rank(suspect) >= 0) ++votes[suspect];
  }
  FailureStatus failure = failed_worker(peer_reports.front());
  if (votes.empty()) return failure;
  const auto most = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  failure.rank = most->first;
  failure.nodeIndex = pass.node_of_rank(most->first);
  failure.node.clear();
  failure.exitCode = -1;
  const bool is_hang =
      std::any_of(peer_reports.begin(), peer_reports.end(), [](const WorkerFailure& peer_report) {
        return peer_report.worker->exit_code == kExitPeerHung;
      });
  failure.reason = is_hang ? kHang : kSuspected;
  if (const PodView* pod = pod_of(pass, failure.nodeIndex)) failure.node = pod->node_name;
  return failure;
}

// Returns until when an agent that this process has never heard may answer, or else counts as
// silent; nullopt: it was heard.
std::optional<TimePoint> first_answer_end(const Pass& pass, const PodView& pod,
                                          const AgentView& agent) {
  if (agent.state || agent.refuses_token) return std::nullopt;
  const TimePoint end = silent_at(pass, pod, current_silence_limit(pass));
  return end > pass.now ? std::optional(end) : std::nullopt;
}

// Returns until when the culprit may still report, or be found lost with its pod; nullopt means
// decide now.
std::optional<TimePoint> culprit_wait_end(const Pass& pass, const FailureStatus& blamed,
                                          TimePoint failed_at) {
  const bool is_hang = blamed.reason == kHang;
  const TimePoint until = failed_at + pass.limits.culprit_wait;
  // A rank that hangs sends no report. One that ended well was lost with its pod, as is seen later.
  const bool any_is_done = std::ranges::any_of(pass.in_round(), [&pass](const PodView* member) {
    const AgentState* state = pass.current_report(member);
    return state != nullptr && has_completed(*state);
  });
  const bool is_over = all_workers_ended(pass, is_hang ? blamed.rank : -1) && !any_is_done;
  if (pass.now < until && !is_over) return until;
  const PodView* pod = pod_of(pass, blamed.nodeIndex);
  const AgentView* agent = pass.agent(pod);
  if (!is_hang) return agent == nullptr ? std::nullopt : first_answer_end(pass, *pod, *agent);
  if (agent == nullptr) {
    const bool is_asked_now =
        pod != nullptr && pod->serves() && pod->phase == "Running" && !pod->ip.empty();
    return is_asked_now ? std::optional(pass.now + current_silence_limit(pass)) : std::nullopt;
  }
  const bool is_heard = agent->state && !is_silent_for(pass, *pod, healthy_silence_limit(pass));
  return is_heard ? std::nullopt
                  : std::optional(silent_at(pass, *pod, current_silence_limit(pass)));
}

// A rank left because it was told to stop. Returns until when the pod that is stopped may be seen
// so, or be found lost because its agent is silent; nullopt means decide now.
std::optional<TimePoint> stop_wait_end(const Pass& pass, TimePoint left_at) {
  TimePoint end = left_at + pass.limits.culprit_wait;
  for (const PodView* pod : pass.in_round()) {
    const AgentView* agent = pass.agent(pod);
    if (agent == nullptr || !is_silent_for(pass, *pod, healthy_silence_limit(pass))) continue;
    end = std::max(end, silent_at(pass, *pod, current_silence_limit(pass)));
  }
  return end > pass.now ? std::optional(end) : std::nullopt;
}

// Sets the culprit that the reports of a lost or hung peer blame, if it is known by now. If the
// cache lacks that rank's pod, looking for missing pods comes first: the pod may be gone, which
// explains the reports, and waiting for the rank to report would be in vain.
void find_blamed(const Pass& pass, const std::vector<WorkerFailure>& peer_reports, Damage& damage) {
  const FailureStatus blamed = blamed_by(pass, peer_reports);
  const bool is_there = pod_of(pass, blamed.nodeIndex) != nullptr || damage.unseen.empty();
  if (!is_there) return;
  damage.culprit = blamed;
  damage.is_new = damage.ends_round = true;
  damage.wait_for_culprit_until = culprit_wait_end(pass, blamed, peer_reports.front().at);
}

// Returns whether the loss belongs to a new failure. A pod created after the failure in status, or
// after the drain that ended the last round, is the victim of a new one; older pods belong to it.
// If the round of creation is unknown, the loss counts as new: otherwise pods could be recreated
// without end.
bool is_new_loss(const Pass& pass, const PodView* pod) {
  const bool is_drained = !pass.formed() && was_drained(pass.status);
  if (pod == nullptr || (!pass.status.lastFailure && !is_drained)) return true;
  if (pass.formed() && pass.is_in_round(pod->node_index)) return true;
  if (!pod->created_in_round) return true;
  const int64_t ended = is_drained ? pass.status.round : pass.status.lastFailure->round;
  return *pod->created_in_round >= ended;
}

void find_lost(const Pass& pass, Damage& damage) {
  const bool is_late = any_is_overdue(pass);
  const std::set<int64_t> without_pods = nodes_without_pods(pass);
  const std::set<int64_t> have_left = nodes_that_left(pass);
  for (size_t i = 0; i < pass.current.size(); ++i) {
    const PodView* pod = pass.current[i];
    const auto index = static_cast<int64_t>(i);
    const char* reason = nullptr;
    if (have_left.contains(index)) continue;
    if (pod != nullptr) {
      reason = loss_of(pass, *pod);
      if (reason == nullptr) reason = overdue_of(pass, *pod, is_late);
    } else if (pass.formed() && pass.is_in_round(index) && !without_pods.contains(index)) {
      const std::string name = member_pod_name(pass.job(), index, pass.members[i]);
      if (pass.seen.absent_pods.contains(name)) {
        reason = "PodLost";
      } else {
        damage.unseen.push_back(name);
      }
    }
    if (reason == nullptr) continue;
    damage.lost.push_back(index);
    damage.ends_round = damage.ends_round || pass.is_in_round(index);
    const bool is_new = is_new_loss(pass, pod);
    if (!damage.culprit || (is_new && !damage.is_new)) {
      damage.culprit = lost_pod(index, pod, reason);
      const AgentView* agent = pass.agent(pod);
      if (reason == kAgentSilent && damage.culprit->message.empty()) {
        damage.culprit->message = agent->error;
      }
    }
    damage.is_new = damage.is_new || is_new;
  }
}

// Returns whether the agent is in a later round than the current one, or in the same round with
// another assignment.
bool disagrees(const Pass& pass, const PodView* pod) {
  const AgentState* state = pass.last_report(pod);
  if (state == nullptr || !pass.formed()) return false;
  return state->round > pass.status.round ||
         (state->round == pass.status.round && state->hash != pass.status.worldHash);
}

// Finds agents that disagree with status because it was set back, as from a backup. The next round
// ends that: its number is above every round they know, so all agents must report first. An agent
// that disagrees with that round too loses its pod.
void find_disagreement(const Pass& pass, Damage& damage) {
  if (damage.culprit) return;
  const auto& last = pass.status.lastFailure;
  const bool is_again =
      last && last->reason == kAgentDisagrees && is_true(pass.status, kRestarting);
  for (const PodView* pod : pass.in_round()) {
    if (pass.last_report(pod) == nullptr) return;
  }
  for (const PodView* pod : pass.in_round()) {
    if (!disagrees(pass, pod)) continue;
    if (!damage.culprit) {
      damage.culprit = lost_pod(pod->node_index, pod, kAgentDisagrees);
      damage.culprit->message = "its agent reports round " +
                                std::to_string(pass.last_report(pod)->round) + " with hash " +
                                pass.last_report(pod)->hash;
    }
    damage.is_new = damage.ends_round = true;
    if (is_again) damage.lost.push_back(pod->node_index);
  }
}

// A pod that exited successfully must be recreated if its round has to be redone.
void add_ended(const Pass& pass, Damage& damage) {
  for (size_t i = 0; i < pass.current.size(); ++i) {
    const PodView* pod = pass.current[i];
    const auto index = static_cast<int64_t>(i);
    if (pod == nullptr || !pod->ended_well()) continue;
    if (std::find(damage.lost.begin(), damage.lost.end(), index) == damage.lost.end()) {
      damage.lost.push_back(index);
    }
  }
}

}  // namespace

bool is_being_stopped(const AgentState& state) {
  if (has_completed(state)) return false;
  if (state.phase == "Stopping" || state.phase == "Exiting") return true;
  return std::any_of(state.workers.begin(), state.workers.end(), [](const WorkerState& worker) {
    return !worker.running && worker.reason == "Stopped";
  });
}

double failed_seconds_ago(const AgentState& state, const WorkerState& worker) {
  return worker.failed_seconds_ago > 0 ? worker.failed_seconds_ago : state.failed_seconds_ago;
}

bool is_repeated_by_a_restart(int64_t exit_code) {
  constexpr int kFinal[] = {kExitBadConfig, kExitDataError, kExitNotFinite, kExitLossSpike,
                            kExitFenced};
  return std::find(std::begin(kFinal), std::end(kFinal), exit_code) != std::end(kFinal);
}

bool is_repeated_in_its_pod(int64_t exit_code) {
  return exit_code == kExitNoDevice;
}

std::optional<Duration> pending_left(const Pass& pass, const PodView* pod) {
  const int64_t allowed = pass.spec().failure.pendingTimeoutSeconds;
  const bool is_pending = pod != nullptr && pod->live() && pod->phase == "Pending" &&
                          pod->created_at && pass.is_in_round(pod->node_index);
  if (allowed <= 0 || !is_pending) return std::nullopt;
  const Duration by_server = *pod->created_at - pass.seen.wall_now;
  const Duration by_own_clock = pod->seen_at ? *pod->seen_at - pass.now : by_server;
  return std::chrono::seconds(allowed) + std::max(by_server, by_own_clock);
}

Damage assess_damage(const Pass& pass) {
  Damage damage;
  find_lost(pass, damage);
  const bool is_whole = !damage.ends_round;
  find_disagreement(pass, damage);
  const std::vector<WorkerFailure> failures = worker_failures(pass);
  if (!failures.empty()) {
    const WorkerFailure& first = root_failure(failures, pass);
    // A rank leaves so when a pod of its round is stopped, which may be the one that is unseen, or
    // the one whose agent is silent.
    const bool is_stopped = pass.spec().train && first.worker->exit_code == kExitStopped;
    if (is_stopped && is_whole && !damage.unseen.empty()) return damage;
    if (!first.reports_peer_failure) {
      const bool is_final = pass.spec().train && is_repeated_by_a_restart(first.worker->exit_code);
      if (is_whole || is_final) damage.culprit = failed_worker(first);
      damage.is_new = damage.ends_round = true;
      const TimePoint until = first.at + pass.limits.command_culprit_wait;
      const bool may_be_another = !pass.spec().train && is_whole &&
                                  !is_certainly_its_own(*first.worker) && !all_workers_ended(pass);
      if (may_be_another && pass.now < until) damage.wait_for_culprit_until = until;
      if (is_stopped && is_whole) damage.wait_for_culprit_until = stop_wait_end(pass, first.at);
    } else if (is_whole) {
      find_blamed(pass, failures, damage);
    }
  }
  if (damage.ends_round) add_ended(pass, damage);
  return damage;
}

}  // namespace lockstep::plan
