#include "controller/loop/metrics.h"

#include <algorithm>

#include "common/api/training_job_fields.h"
#include "controller/plan/conditions.h"

namespace lockstep::loop {
namespace {

double seconds_from(const std::string& time, WallTime now) {
  const Result<WallTime> from = wall_time_from_rfc3339(time);
  return from.ok() ? std::max(0.0, to_seconds(now - *from)) : 0;
}

// Agents and kubelets choose the reasons, and each distinct label stays a series forever.
std::string label_of(const std::string& reason) {
  return codec::has_choice(kFailureEvents, reason) ? reason : "Other";
}

}  // namespace

std::optional<double> goodput_ratio(const TrainingJobStatus& status, WallTime now) {
  if (is_finished(status) || is_true(status, kSuspended)) return std::nullopt;
  double trained = status.trainedSeconds;
  double lost = status.lost.seconds;
  const Condition* running = find_condition(status, kRunning);
  if (running != nullptr && running->status == "True") {
    trained += seconds_from(running->lastTransitionTime, now);
  } else if (status.lastFailure && is_true(status, kRestarting)) {
    lost += seconds_from(status.lastFailure->time, now);
  }
  if (trained <= 0) return std::nullopt;
  const int64_t step = status.progress ? status.progress->step.value_or(0) : 0;
  const auto steps = static_cast<double>(step);
  const double again = static_cast<double>(status.lost.steps);
  const double counted = steps + again > 0 ? steps / (steps + again) : 1;
  return trained / (trained + lost) * counted;
}

void JobMetrics::observe(const TrainingJobStatus& before, const TrainingJobStatus& after,
                         const std::string& created, WallTime now) {
  const auto failures = [](const TrainingJobStatus& status) {
    return status.lastFailure ? status.lastFailure->number : 0;
  };
  if (failures(after) > failures(before) && after.lastFailure->action != "Fail") {
    restarts_[label_of(after.lastFailure->reason)] +=
        static_cast<uint64_t>(failures(after) - failures(before));
  }
  const double recovery = after.lastFailure ? after.lastFailure->recoverySeconds : 0;
  const bool had_it = before.lastFailure && after.lastFailure &&
                      before.lastFailure->time == after.lastFailure->time &&
                      before.lastFailure->recoverySeconds > 0;
  if (recovery > 0 && !had_it) {
    recovery_seconds_.observe(recovery);
    for (size_t i = 0; i < plan::kRecoveryParts.size(); ++i) {
      const std::optional<double>& part =
          after.lastFailure->recovery.*plan::kRecoveryParts[i].seconds;
      part_seconds_[i].observe(part.value_or(0));
    }
  }
  const auto recompute = [](const TrainingJobStatus& status) {
    return status.lastFailure ? status.lastFailure->recovery.recomputeSeconds : std::nullopt;
  };
  const bool is_new = failures(after) > failures(before) || !recompute(before);
  if (recompute(after) && is_new) recompute_seconds_.observe(*recompute(after));
  const bool is_first = failures(after) == 0 && after.trainedSeconds == 0;
  if (!is_first || !is_true(after, kRunning) || is_true(before, kRunning)) return;
  const Condition* suspended = find_condition(after, kSuspended);
  const std::string& begun = suspended == nullptr ? created : suspended->lastTransitionTime;
  if (wall_time_from_rfc3339(begun).ok()) ready_seconds_.observe(seconds_from(begun, now));
}

}  // namespace lockstep::loop
