#include "controller/plan/conditions.h"
#include "controller/plan/ledger.h"
#include "controller/plan/members.h"
#include "controller/plan/names.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {
namespace {

Verdict suspend(Pass& pass) {
  close_interval(pass.status, pass.seen.wall_now);
  pass.set(kSuspended, true, "SpecSuspend");
  pass.set(kRunning, false, "Suspended");
  pass.set(kRestarting, false, "Suspended");
  pass.status.startTime.clear();
  pass.status.worldHash.clear();
  pass.status.rendezvous.reset();
  pass.event(false, "Suspended", "the job's pods are being stopped; its checkpoints are kept");
  pass.plan.why = "spec.suspend is true: suspending the job";
  return Verdict::kDecided;
}

Verdict hold(Pass& pass) {
  pass.plan.why = "the job is suspended";
  for (const PodView& pod : pass.seen.pods) {
    if (!pod.live()) continue;
    pass.act(DeletePod{
        .name = pod.name, .uid = pod.uid, .grace_seconds = pod_grace_seconds(pass.spec())});
  }
  return Verdict::kActed;
}

// The old pods may still save their last checkpoint, from which the new ones start. A pod that is
// still Terminating after its grace period holds nobody up.
bool old_pods_still_save(Pass& pass) {
  bool saving = false;
  for (const PodView& pod : pass.seen.pods) {
    if (!pod.terminating || pod.finished() || !pod.gone_by) continue;
    const Duration rest = *pod.gone_by - pass.seen.wall_now;
    if (rest <= Duration{0}) continue;
    pass.requeue(pass.now + rest);
    saving = true;
  }
  return saving;
}

Verdict resume(Pass& pass) {
  if (old_pods_still_save(pass)) {
    pass.plan.why = "waiting for the pods from before the suspension to end";
    return Verdict::kActed;
  }
  for (int64_t& incarnation : pass.members) ++incarnation;
  pass.status.members = members_to_text(pass.members);
  pass.status.startTime = rfc3339(pass.seen.wall_now);
  pass.set(kSuspended, false, "Resumed");
  pass.event(false, "Resumed", "new pods are being created");
  pass.plan.why = "spec.suspend is false: resuming the job";
  return Verdict::kDecided;
}

}  // namespace

Verdict suspension(Pass& pass) {
  const bool is_suspended = is_true(pass.status, kSuspended);
  if (pass.spec().suspend) return is_suspended ? hold(pass) : suspend(pass);
  return is_suspended ? resume(pass) : Verdict::kNext;
}

}  // namespace lockstep::plan
