#include <algorithm>
#include <iterator>
#include <ranges>

#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "controller/plan/damage.h"
#include "controller/plan/members.h"
#include "tests/controller/sim/invariants.h"
#include "tests/controller/sim/skewed_clock.h"
#include "tests/controller/sim/users.h"

namespace lockstep::sim {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// By this time a controller must have acted.
constexpr Duration kActMax = minutes(8);
// Time within which the controller notices a pod's change if watches work.
constexpr Duration kNoticed = seconds(10);

// Reasons that don't blame the machine.
constexpr std::string_view kNotOfTheMachine[] = {"PodDeleted", "PodStopped", "PodEnded",
                                                 "PodLost",    "Evicted",    "Preempted",
                                                 "Suspected",  "NoAddress",  "ImagePullFailed"};

// Returns whether a failure may be the one before once more, which ranks that lost a peer have
// reported before its agent's silence counts: of the next round, or of a later one if none has
// trained since.
bool is_lost_again(const Json& before, const Json& failure) {
  const Json& last = member(before, "lastFailure");
  const std::string reason = string_or(failure, "reason", "");
  const bool is_loss = reason == plan::kAgentSilent || reason == plan::kSuspected ||
                       int_or(failure, "exitCode", -1) == kExitPeerLost;
  const bool is_next = int_or(last, "round", -1) + 1 == int_or(failure, "round", 0);
  return is_loss && !last.is_null() && (is_next || int_or(last, "resumedStep", -1) < 0);
}

const Json& failure_spec(const Json& job) {
  return member(member(job, "spec"), "failure");
}

std::optional<WallTime> time_in(const Json& status, const char* key) {
  const Result<WallTime> time = wall_time_from_rfc3339(string_or(status, key, ""));
  return time.ok() ? std::optional(*time) : std::nullopt;
}

std::set<std::string> machines_to_avoid(const Json& status, int64_t failures) {
  std::map<std::string, int64_t> counts;
  for (const Json& failure : member(status, "failures")) {
    const std::string reason = string_or(failure, "reason", "");
    const std::string machine = string_or(failure, "node", "");
    const bool is_its = std::find(std::begin(kNotOfTheMachine), std::end(kNotOfTheMachine),
                                  reason) == std::end(kNotOfTheMachine);
    if (is_its && !machine.empty()) ++counts[machine];
  }
  std::set<std::string> machines;
  for (const auto& [machine, count] : counts) {
    if (failures > 0 && count >= failures) machines.insert(machine);
  }
  return machines;
}

}  // namespace

const Json& new_failure(const Json& before, const Json& after) {
  static const Json kNone;
  const Json& failure = member(after, "lastFailure");
  const int64_t number = int_or(failure, "number", 0);
  return number == int_or(member(before, "lastFailure"), "number", 0) ? kNone : failure;
}

std::string action_of_rule(const Json& job, const Json& failure) {
  for (const Json& rule : member(failure_spec(job), "rules")) {
    const Json& codes = member(rule, "exitCodes");
    const std::string event = string_or(rule, "event", "");
    const bool has_code =
        codes.empty() ||
        std::find(codes.begin(), codes.end(), int_or(failure, "exitCode", -1)) != codes.end();
    if (has_code && (event.empty() || event == string_or(failure, "reason", ""))) {
      return string_or(rule, "action", "");
    }
  }
  return "";
}

// Returns whether the failure is the loss of a pod whose process, of a server or worker, had failed
// before in this round.
bool Invariants::follows_failed_process(const Json& job, const Json& before, const Json& failure) {
  const int64_t node = int_or(failure, "nodeIndex", -1);
  const Result<ServersView> view = servers_view_from_text(string_or(before, "serversView", ""));
  const bool is_away = view.ok() && view->workers.contains(node);
  if (int_or(failure, "rank", -1) >= 0) return false;
  if (!holds_nothing(job, before, node) && !is_away) return false;
  const Json* newest = nullptr;
  for (const Json& known : member(before, "failures")) {
    if (int_or(known, "nodeIndex", -1) == node) newest = &known;
  }
  return newest != nullptr && int_or(*newest, "rank", -1) >= 0 &&
         int_or(*newest, "round", 0) == int_or(failure, "round", -1);
}

bool Invariants::has_clock_jumped() const {
  return chance_.counts.faults[static_cast<size_t>(Fault::kClockJump)] > 0;
}

// Returns the largest difference between a time that one replica wrote and the clock of another, or
// of the server.
Duration Invariants::clock_error() const {
  const bool are_right = chance_.counts.faults[static_cast<size_t>(Fault::kSkewedClock)] == 0;
  return are_right ? Duration{0} : 2 * (SkewedClock::kAheadMax + SkewedClock::kDriftedMax);
}

// The first rule that matches a failure decides what follows and whether the failure counts.
void Invariants::check_rules(const Json& job, const Json& after) {
  const Json& before = member(job, "status");
  const Json& failure = new_failure(before, after);
  const std::string rule = action_of_rule(job, failure);
  const std::string action = string_or(failure, "action", "");
  const bool restarts = action == "RestartInPlace" || action == "RecreatePod";
  const int64_t counted = int_or(after, "restarts", 0) - int_or(before, "restarts", 0);
  // An elastic job's round goes on without a pod that is lost outside of it.
  const std::string hash = string_or(before, "worldHash", "");
  const bool may_go_on = !member(member(job, "spec"), "elastic").is_null() ||
                         is_yet_to_be_added(job, before, int_or(failure, "nodeIndex", -1));
  const bool goes_on =
      rule.empty() && may_go_on && !hash.empty() && hash == string_or(after, "worldHash", "");
  if (restarts && !goes_on && rule.empty() && counted == 0 && is_lost_again(before, failure)) {
    if (chance_.counts.controllers_are_well() && !has_unheard_member(job)) {
      chance_.violate("restarts", "a failure was not counted, although all agents answered");
    }
    return;
  }
  // Several pods may be lost at once.
  if (rule.empty() && counted == 0 && follows_failed_process(job, before, failure)) return;
  if (restarts && counted != (rule == "Ignore" || goes_on ? 0 : 1)) {
    chance_.violate("restarts", rule == "Ignore" ? "an ignored failure was counted"
                                                 : "a failure was not counted");
  }
  const bool failed_by_rule = is_set(after, kFailed) && reason_of(after, kFailed) == "FailureRule";
  if (failed_by_rule != (rule == "Fail")) {
    chance_.violate(
        "rules", "the action of the rule is \"" + rule + "\", but the action taken is " + action);
  }
  const bool is_of_process = int_or(failure, "rank", -1) >= 0;
  const auto index = static_cast<size_t>(int_or(failure, "nodeIndex", 0));
  const std::vector<int64_t> old = plan::members_from_text(string_or(before, "members", ""));
  const std::vector<int64_t> now = plan::members_from_text(string_or(after, "members", ""));
  const bool is_recreated = index < old.size() && index < now.size() && now[index] > old[index];
  if (restarts && rule == "RecreatePod" && !is_recreated) {
    chance_.violate("rules", "a pod was not recreated despite the rule");
  }
  // Another pod may be lost at the same time, and is replaced with the same write.
  const auto both = std::min(std::ssize(old), std::ssize(now));
  const bool is_with_another =
      std::ranges::any_of(std::views::iota(int64_t{0}, both), [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        return now[at] > old[at] && at != index;
      });
  if (is_of_process && rule == "RestartInPlace" && restarts && action != rule && !is_with_another) {
    chance_.violate("rules", "a process was not restarted in place despite the rule");
  }
  if (failed_by_rule) chance_.count(Transition::kFailedByRule);
  if (restarts && rule == "Ignore") chance_.count(Transition::kIgnored);
  if (is_of_process && restarts && rule == "RecreatePod") {
    chance_.count(Transition::kRecreateByRule);
  }
}

// Returns whether a healthy pod is to be replaced: a rule wants it, or its machine has failed too
// often.
bool Invariants::is_to_be_replaced(const Json& job, const Json& after, int64_t index) const {
  const Json& failure = new_failure(member(job, "status"), after);
  if (failure.is_null() || int_or(failure, "nodeIndex", -1) != index) return false;
  const std::string rule = action_of_rule(job, failure);
  if (!rule.empty()) return rule == "RecreatePod";
  const int64_t failures = int_or(failure_spec(job), "avoidNodes", 0);
  return machines_to_avoid(after, failures).contains(string_or(failure, "node", ""));
}

// Pods that have waited for more than half of the limit are given up together with an overdue one.
bool Invariants::waits_too_long(const Json& job, const Node& node) const {
  const int64_t allowed = int_or(failure_spec(job), "pendingTimeoutSeconds", 0);
  if (allowed <= 0) return false;
  const Duration waited = chance_.clock.now() - node.created_at;
  // Creation times are truncated to whole seconds.
  return has_clock_jumped() || waited + seconds(1) >= seconds(allowed) / 2;
}

void Invariants::check_given_up(const Json& job, const Json& after, const Node* node) {
  const Json& failure = new_failure(member(job, "status"), after);
  const std::string reason = string_or(failure, "reason", "");
  constexpr std::string_view kOfPending[] = {"PodPending", "Unschedulable", "ImagePullFailed"};
  if (std::find(std::begin(kOfPending), std::end(kOfPending), reason) == std::end(kOfPending)) {
    return;
  }
  chance_.count(Transition::kPendingGivenUp);
  const int64_t allowed = int_or(failure_spec(job), "pendingTimeoutSeconds", 0);
  // The pod may have started since, or be gone.
  if (allowed <= 0 || (node != nullptr && !waits_too_long(job, *node))) {
    return chance_.violate("pending", "a pod was given up before its pending timeout");
  }
  const bool runs_for_long =
      node != nullptr && !node->ip.empty() && chance_.clock.now() - node->started_at > kNoticed;
  if (!runs_for_long && !has_clock_jumped()) return;
  if (chance_.counts.controllers_are_well() && !has_clock_jumped()) {
    chance_.violate("pending", "a running pod was given up as pending");
  }
  // A watch may lag, or a clock jump, for longer than the job's pending timeout.
  ++causes_[uid_of(job)];
}

// New pods avoid exactly the machines on which others failed too often.
void Invariants::check_avoided(const Json& job, const Json& pod) {
  const std::set<std::string> avoided = avoided_by(pod);
  if (!avoided.empty()) chance_.count(Transition::kNodeAvoided);
  const int64_t failures = int_or(failure_spec(job), "avoidNodes", 0);
  if (stalls_ > 0 || avoided == machines_to_avoid(member(job, "status"), failures)) return;
  chance_.violate("machines", "a pod avoids " + std::to_string(avoided.size()) +
                                  " machines, which are not the ones that failed");
}

// A job that is active for too long fails, and no other job fails for that reason.
void Invariants::check_deadline(const Json& job, const Json& after) {
  const Json& before = member(job, "status");
  const int64_t allowed = int_or(member(job, "spec"), "activeDeadlineSeconds", 0);
  const bool fails = is_set(after, kFailed) && !is_set(before, kFailed) &&
                     reason_of(after, kFailed) == "DeadlineExceeded";
  if (fails) chance_.count(Transition::kDeadlineExceeded);
  const std::optional<WallTime> started = time_in(before, "startTime");
  if (fails && (allowed <= 0 || !started || is_set(before, kSuspended))) {
    return chance_.violate("deadline", "a job failed by a deadline that it does not have");
  }
  if (allowed <= 0 || !started || has_clock_jumped()) return;
  const Duration left = *started + seconds(allowed) - chance_.clock.wall_now();
  if (fails && left > clock_error())
    chance_.violate("deadline", "a job failed before its deadline");
  const bool is_held =
      is_set(before, kSuspended) || is_set(after, kSuspended) || is_illegal(member(job, "spec"));
  if (!fails && !is_finished(before) && !is_held && left < -kActMax - clock_error()) {
    chance_.violate("deadline", "a job continues after its deadline");
  }
}

// The controller deletes jobs only because of ttlSecondsAfterFinished.
void Invariants::check_expiry(const loop::ApiRequest& request, const Json& job) {
  chance_.count(Transition::kExpired);
  const Json& preconditions = member(request.body, "preconditions");
  if (string_or(preconditions, "uid", "") != uid_of(job) ||
      string_or(preconditions, "resourceVersion", "").empty()) {
    chance_.violate("I4", "a job was deleted without UID and version as preconditions");
  }
  const Json& status = member(job, "status");
  const int64_t allowed = int_or(member(job, "spec"), "ttlSecondsAfterFinished", -1);
  const std::optional<WallTime> ended = time_in(status, "completionTime");
  if (!is_finished(status) || allowed < 0 || !ended) {
    return chance_.violate("ttl", "a job was deleted that has no expired ttl");
  }
  if (!has_clock_jumped() && *ended + seconds(allowed) > chance_.clock.wall_now() + clock_error()) {
    chance_.violate("ttl", "a job was deleted before its ttl expired");
  }
}

}  // namespace lockstep::sim
