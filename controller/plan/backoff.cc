#include "controller/plan/backoff.h"

#include <algorithm>

namespace lockstep::plan {

Duration restart_delay(int64_t attempt, const Limits& limits) {
  if (attempt < 2) return Duration{0};
  Duration delay = limits.backoff_first;
  for (int64_t i = 2; i < attempt && delay < limits.backoff_max; ++i) delay *= 2;
  return std::min(delay, limits.backoff_max);
}

Duration restart_wait(const FailureStatus& failure, WallTime wall_now, const Limits& limits) {
  const Duration delay = restart_delay(failure.attempt, limits);
  const Result<WallTime> failed_at = wall_time_from_rfc3339(failure.time);
  if (!failed_at.ok()) return Duration{0};
  return std::clamp(*failed_at + delay - wall_now, Duration{0}, delay);
}

bool must_back_off(Pass& pass, const FailureStatus& failure) {
  const Duration wait = restart_wait(failure, pass.seen.wall_now, pass.limits);
  if (wait <= Duration{0}) return false;
  pass.requeue(pass.now + wait);
  return true;
}

}  // namespace lockstep::plan
