#include "controller/plan/ledger.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "common/base/utf8.h"
#include "controller/plan/conditions.h"
#include "controller/plan/draining.h"

namespace lockstep::plan {
namespace {

constexpr size_t kOldMessageBytes = 160;
constexpr double kShortest = 0.001;  // of a recovery: 0 means that it is not over

// Reasons that say nothing about the node: somebody caused them on purpose, or the cause is
// unknown.
constexpr std::string_view kNotOfTheNode[] = {"PodDeleted", "PodStopped", "PodEnded",
                                              "PodLost",    "Evicted",    "Preempted",
                                              "Suspected",  "NoAddress",  "ImagePullFailed"};

// Reasons that say that the node itself is gone, or slow.
constexpr std::string_view kLosses[] = {"AgentSilent",  "NodeNotReady", "NodeDeleted",
                                        "NodeShutdown", "NodeTainted",  kStraggler};
constexpr Duration kLately = std::chrono::minutes(10);

using Part = std::optional<double> RecoveryStatus::*;

// Rounds to milliseconds; sums of rounded values need it again.
double rounded(double seconds) {
  return std::round(seconds * 1000) / 1000;
}

// Returns "1.25" for 1.25, "2" for 2.
std::string decimal(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", rounded(seconds));
  return text;
}

// Never negative, even if the clock was set back; nullopt if the time can't be parsed.
std::optional<double> seconds_from(const std::string& time, WallTime now) {
  const Result<WallTime> from = wall_time_from_rfc3339(time);
  if (!from.ok()) return std::nullopt;
  return std::max(0.0, rounded(to_seconds(now - *from)));
}

double sum(const RecoveryStatus& recovery) {
  double seconds = 0;
  for (const RecoveryPart& part : kRecoveryParts) {
    seconds += (recovery.*part.seconds).value_or(0);
  }
  return rounded(seconds);
}

void store_newest(TrainingJobStatus& status) {
  const FailureStatus& newest = *status.lastFailure;
  if (status.failures.empty() || status.failures.back().number != newest.number) {
    for (FailureStatus& older : status.failures) {
      older.message = std::string(utf8_tail(older.message, kOldMessageBytes));
    }
    status.failures.push_back(newest);
  } else {
    status.failures.back() = newest;
  }
  while (status.failures.size() > kFailuresKept) status.failures.erase(status.failures.begin());
}

// Returns the failure whose recovery is in progress, or nullptr.
FailureStatus* recovering(TrainingJobStatus& status) {
  if (!status.lastFailure || !is_true(status, kRestarting)) return nullptr;
  return status.lastFailure->recoverySeconds > 0 ? nullptr : &*status.lastFailure;
}

// The wait is recorded beforehand. If less time than that has passed, as after a clock jump, cuts
// the excess.
void trim_wait(RecoveryStatus& recovery, double since) {
  const double excess = sum(recovery) - since;
  if (excess <= 0 || !recovery.waitSeconds) return;
  recovery.waitSeconds = rounded(std::max(0.0, *recovery.waitSeconds - excess));
}

// Sets the part to the time since the failure that the parts known so far do not cover.
void note(TrainingJobStatus& status, WallTime now, Part part) {
  FailureStatus* failure = recovering(status);
  if (failure == nullptr || failure->recovery.*part) return;
  const std::optional<double> since = seconds_from(failure->time, now);
  if (!since) return;
  if (part != &RecoveryStatus::podsSeconds) trim_wait(failure->recovery, *since);
  failure->recovery.*part = rounded(std::max(0.0, *since - sum(failure->recovery)));
  store_newest(status);
}

// Takes so much time off `from`, at most all of it; returns what it took.
double move_time(double& from, double seconds) {
  const double moved = std::clamp(rounded(seconds), 0.0, from);
  from = rounded(from - moved);
  return moved;
}

// Returns how long all ranks have trained by now; nullopt if they don't.
std::optional<double> running_seconds(const TrainingJobStatus& status, WallTime now) {
  const Condition* running = find_condition(status, kRunning);
  if (running == nullptr || running->status != "True") return std::nullopt;
  return seconds_from(running->lastTransitionTime, now).value_or(0);
}

double seconds_since_drain(const TrainingJobStatus& status, WallTime now) {
  return seconds_from(find_condition(status, kRestarting)->lastTransitionTime, now).value_or(0);
}

void add_lost_seconds(TrainingJobStatus& status, double seconds) {
  status.lost.seconds = rounded(status.lost.seconds + seconds);
}

}  // namespace

void record_failure(TrainingJobStatus& status, FailureStatus failure) {
  const Result<WallTime> failed_at = wall_time_from_rfc3339(failure.time);
  if (failed_at.ok()) close_interval(status, *failed_at);
  failure.number = (status.lastFailure ? status.lastFailure->number : 0) + 1;
  status.lastFailure = std::move(failure);
  store_newest(status);
}

std::optional<WallTime> end_of_newest(const TrainingJobStatus& status) {
  if (!status.lastFailure) return std::nullopt;
  const Result<WallTime> failed_at = wall_time_from_rfc3339(status.lastFailure->time);
  if (!failed_at.ok()) return std::nullopt;
  return *failed_at + from_seconds(status.lastFailure->recoverySeconds);
}

void note_pods(TrainingJobStatus& status, WallTime now) {
  note(status, now, &RecoveryStatus::podsSeconds);
}

void note_formed(TrainingJobStatus& status, WallTime now,
                 const std::optional<RoundBeginning>& beginning) {
  FailureStatus* failure = recovering(status);
  if (failure == nullptr || failure->recovery.formSeconds) return;
  note(status, now, &RecoveryStatus::formSeconds);
  RecoveryStatus& parts = failure->recovery;
  if (!beginning || !parts.formSeconds) return;
  parts.abortSeconds = move_time(*parts.formSeconds, beginning->abort_seconds);
  parts.respawnSeconds = move_time(*parts.formSeconds, beginning->start_seconds);
  store_newest(status);
}

void note_recovered(TrainingJobStatus& status, WallTime now,
                    const std::optional<RoundBeginning>& beginning) {
  note_pods(status, now);
  note_formed(status, now, beginning);
  note(status, now, &RecoveryStatus::restoreSeconds);
  if (was_drained(status)) add_lost_seconds(status, seconds_since_drain(status, now));
  FailureStatus* failure = recovering(status);
  if (failure == nullptr || !failure->recovery.restoreSeconds) return;
  if (sum(failure->recovery) < kShortest) failure->recovery.restoreSeconds = kShortest;
  failure->recoverySeconds = sum(failure->recovery);
  add_lost_seconds(status, failure->recoverySeconds);
  store_newest(status);
}

std::string recovery_text(const FailureStatus& failure) {
  std::string parts;
  for (const RecoveryPart& part : kRecoveryParts) {
    const std::optional<double> seconds = failure.recovery.*part.seconds;
    if (!seconds) continue;
    parts += (parts.empty() ? "" : ", ") + std::string(part.name) + " " + decimal(*seconds);
  }
  return "all ranks train again, " + decimal(failure.recoverySeconds) + " s after failure " +
         std::to_string(failure.number) + ": " + parts + " s";
}

double longest_run_seconds(const TrainingJobStatus& status, WallTime now) {
  const double recorded =
      status.longestRunSeconds > 0 ? status.longestRunSeconds : status.trainedSeconds;
  return std::max(recorded, running_seconds(status, now).value_or(0));
}

void close_interval(TrainingJobStatus& status, WallTime now) {
  status.longestRunSeconds = longest_run_seconds(status, now);
  if (const std::optional<double> trained = running_seconds(status, now)) {
    status.trainedSeconds = rounded(status.trainedSeconds + *trained);
  } else if (was_drained(status)) {
    add_lost_seconds(status, seconds_since_drain(status, now));
  } else if (const FailureStatus* failure = recovering(status)) {
    add_lost_seconds(status, seconds_from(failure->time, now).value_or(0));
  }
}

std::vector<std::string> nodes_to_avoid(const TrainingJobStatus& status, int64_t failures) {
  if (failures <= 0) return {};
  std::map<std::string, int64_t> counts;
  for (const FailureStatus& failure : status.failures) {
    const bool is_its = std::find(std::begin(kNotOfTheNode), std::end(kNotOfTheNode),
                                  failure.reason) == std::end(kNotOfTheNode);
    if (is_its && !failure.node.empty()) ++counts[failure.node];
  }
  std::vector<std::string> nodes;
  for (const auto& [node, count] : counts) {
    if (count >= failures) nodes.push_back(node);
  }
  return nodes;
}

std::vector<std::string> lately_lost_nodes(const TrainingJobStatus& status, WallTime now) {
  std::set<std::string> nodes;
  for (const FailureStatus& failure : status.failures) {
    const bool is_lost = std::ranges::find(kLosses, failure.reason) != std::end(kLosses);
    const std::optional<double> ago = seconds_from(failure.time, now);
    if (is_lost && ago && *ago <= to_seconds(kLately) && !failure.node.empty()) {
      nodes.insert(failure.node);
    }
  }
  return {nodes.begin(), nodes.end()};
}

void note_resumed(TrainingJobStatus& status, int64_t step, std::string_view from) {
  if (!status.lastFailure || status.lastFailure->resumedStep >= 0) return;
  FailureStatus& failure = *status.lastFailure;
  failure.resumedStep = std::max<int64_t>(0, step);
  failure.resumedFrom = from;
  status.lost.steps += std::max<int64_t>(0, failure.step - failure.resumedStep);
  store_newest(status);
}

void note_recomputed(TrainingJobStatus& status, int64_t step, WallTime now) {
  if (!status.lastFailure) return;
  FailureStatus& failure = *status.lastFailure;
  const bool is_over = failure.recoverySeconds > 0 && failure.resumedStep >= 0;
  if (!is_over || failure.recovery.recomputeSeconds) return;
  if (failure.resumedStep >= failure.step) {
    failure.recovery.recomputeSeconds = 0;  // nothing was lost
  } else if (step >= failure.step && status.round == failure.round + 1) {
    const double since = seconds_from(failure.time, now).value_or(0);
    failure.recovery.recomputeSeconds = rounded(std::max(0.0, since - failure.recoverySeconds));
  } else {
    return;
  }
  store_newest(status);
}

}  // namespace lockstep::plan
