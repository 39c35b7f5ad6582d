#include "controller/loop/metrics.h"

#include <algorithm>

#include "controller/plan/conditions.h"

namespace lockstep {

void JobMetrics::observe(const TrainingJobStatus& before, const TrainingJobStatus& after,
                         const std::string& created, WallTime now) {
  if (after.restarts > before.restarts) {
    const std::string reason = after.lastFailure ? after.lastFailure->reason : "";
    restarts_[reason] += static_cast<uint64_t>(after.restarts - before.restarts);
  }
  const double recovery = after.lastFailure ? after.lastFailure->recoverySeconds : 0;
  const bool had_it = before.lastFailure && before.lastFailure->time == after.lastFailure->time &&
                      before.lastFailure->recoverySeconds > 0;
  if (recovery > 0 && !had_it) recovery_seconds_.observe(recovery);
  const bool first_ready = after.round == 1 && after.restarts == 0 && is_true(after, kRunning) &&
                           !is_true(before, kRunning);
  if (!first_ready) return;
  const Result<WallTime> since = wall_time_from_rfc3339(created);
  if (since.ok()) ready_seconds_.observe(std::max(0.0, to_seconds(now - *since)));
}

}  // namespace lockstep
