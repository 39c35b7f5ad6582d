#include "controller/plan/names.h"
#include "controller/plan/pass.h"

namespace lockstep {

// A job that is given to another controller while it is suspended leaves no pods behind either.
// A job that is gone altogether takes its pods and its Secret with it by their ownerReferences;
// this is for one that waits for them (foreground deletion, somebody's finalizer).
Verdict deletion(Pass& pass) {
  const std::string& manager = pass.spec().managedBy;
  const bool is_others = !manager.empty() && manager != kControllerName;
  // With the pods that this controller has made, validation refuses the change.
  const bool is_deleted = !pass.job().metadata.deletionTimestamp.empty();
  if (!is_deleted && !(is_others && pass.status.fixed.empty())) return Verdict::kNext;
  pass.plan.why = is_deleted ? "the job is being deleted" : "another controller manages the job";
  pass.plan.watch.clear();
  for (const PodView& pod : pass.seen.pods) {
    if (pod.terminating) continue;
    pass.act(DeletePod{
        .name = pod.name,
        .uid = pod.uid,
        .grace_seconds = pass.spec().terminationGracePeriodSeconds + kAgentMarginSeconds});
  }
  return Verdict::kLeave;
}

}  // namespace lockstep
