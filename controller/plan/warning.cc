#include "controller/plan/names.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// The pod is deleted with its time to save, like by a drain of its node: the policies after this
// one see a pod that is stopped. The deletion is repeated until the watch shows it.
Verdict warning(Pass& pass) {
  for (const PodView* pod : pass.current) {
    if (pod == nullptr || !pod->live() || !pod->is_warned) continue;
    pass.plan.why = "a pod will be preempted; it is deleted, so that the ranks can save";
    pass.act(DeletePod{
        .name = pod->name, .uid = pod->uid, .grace_seconds = pod_grace_seconds(pass.spec())});
  }
  return pass.plan.actions.empty() ? Verdict::kNext : Verdict::kActed;
}

}  // namespace lockstep::plan
