#include "controller/plan/conditions.h"
#include "controller/plan/ledger.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// Enforces spec.activeDeadlineSeconds, counted from status.startTime. A suspension restarts the
// count, as for a batch/Job.
Verdict deadline(Pass& pass) {
  const int64_t allowed = pass.spec().activeDeadlineSeconds;
  const Result<WallTime> started = wall_time_from_rfc3339(pass.status.startTime);
  if (allowed <= 0 || !started.ok()) return Verdict::kNext;
  const Duration left = *started + std::chrono::seconds(allowed) - pass.seen.wall_now;
  if (left > Duration{0}) {
    pass.requeue(pass.now + left);
    return Verdict::kNext;
  }
  const std::string time = rfc3339(pass.seen.wall_now);
  const std::string message =
      "the job was active for longer than spec.activeDeadlineSeconds: " + std::to_string(allowed);
  close_interval(pass.status, pass.seen.wall_now);
  for (const char* type : {kRunning, kRestarting, kFailed}) {
    const bool failed = type == std::string_view(kFailed);
    pass.set(type, failed, "DeadlineExceeded", failed ? message : "");
  }
  pass.status.completionTime = time;
  pass.event(true, "DeadlineExceeded", message);
  pass.plan.why = "spec.activeDeadlineSeconds is exceeded";
  return Verdict::kDecided;
}

}  // namespace lockstep::plan
