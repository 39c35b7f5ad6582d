#include "controller/plan/names.h"
#include "controller/plan/pass.h"

namespace lockstep {

// A job that is gone altogether takes its pods and its Secret with it by their ownerReferences;
// this is for one that waits for them (foreground deletion, somebody's finalizer).
Verdict deletion(Pass& pass) {
  const std::string& manager = pass.spec().managedBy;
  if (!manager.empty() && manager != kControllerName) {
    pass.plan.why = "another controller manages the job";
    return Verdict::kLeave;
  }
  if (pass.job().metadata.deletionTimestamp.empty()) return Verdict::kNext;
  pass.plan.why = "the job is being deleted";
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
