#include "controller/plan/names.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// Deletes the pods of a job whose deletion waits for them (foreground deletion, another party's
// finalizer), and of a job that was given to another controller while it was suspended. If the job
// object is gone, its ownerReferences already take its pods and Secret with it.
Verdict deletion(Pass& pass) {
  const std::string& manager = pass.spec().managedBy;
  const bool is_others = !manager.empty() && manager != kControllerName;
  // While the job has pods of this controller (status.fixed is set), validation refuses a new
  // managedBy.
  const bool is_deleted = !pass.job().metadata.deletionTimestamp.empty();
  if (!is_deleted && !(is_others && pass.status.fixed.empty())) return Verdict::kNext;
  pass.plan.why = is_deleted ? "the job is being deleted" : "another controller manages the job";
  pass.plan.watch.clear();
  for (const PodView& pod : pass.seen.pods) {
    if (pod.terminating) continue;
    pass.act(DeletePod{
        .name = pod.name, .uid = pod.uid, .grace_seconds = pod_grace_seconds(pass.spec())});
  }
  return Verdict::kLeave;
}

}  // namespace lockstep::plan
