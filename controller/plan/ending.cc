#include <algorithm>

#include "controller/plan/conditions.h"
#include "controller/plan/names.h"
#include "controller/plan/pass.h"
#include "controller/plan/world.h"

namespace lockstep::plan {
namespace {

bool is_in_round(const Pass& pass, const PodView& pod) {
  return pass.is_in_round(pod.node_index) &&
         pass.current[static_cast<size_t>(pod.node_index)] == &pod;
}

// Returns whether the agent says that it is exiting, or has exited.
bool is_leaving(const Pass& pass, const PodView& pod) {
  if (!pod.serves()) return true;
  const AgentView* view = pass.agent(&pod);
  return view != nullptr && view->state && view->state->phase == "Exiting";
}

// Returns whether the agent has been silent for too long by the monotonic clock, refuses the token,
// shares no protocol version with us, or is too old for the round's world.
bool is_out_of_reach(const Pass& pass, const PodView& pod, int64_t protocol) {
  const AgentView* view = pass.agent(&pod);
  if (view == nullptr) return false;
  return view->refuses_token || view->has_unsupported_protocol() ||
         (view->state && !may_be_sent(view, protocol)) ||
         pass.now - view->last_heard >= pass.limits.exit_timeout;
}

// Enforces spec.ttlSecondsAfterFinished. Waits until the job's pods are gone, so that no final
// report is cut off, but not for a pod that is still Terminating after its grace period.
void expire(Pass& pass, Duration since) {
  const int64_t allowed = pass.spec().ttlSecondsAfterFinished;
  if (allowed < 0 || pass.status.completionTime.empty()) return;
  bool is_awaited = false;
  for (const PodView& pod : pass.seen.pods) {
    if (pod.finished()) continue;
    if (!pod.terminating || !pod.gone_by) return;
    const Duration rest = *pod.gone_by - pass.seen.wall_now;
    if (rest <= Duration{0}) continue;
    pass.requeue(pass.now + rest);
    is_awaited = true;
  }
  if (is_awaited) return;
  const Duration left = std::chrono::seconds(allowed) - since;
  if (left > Duration{0}) {
    pass.requeue(pass.now + left);
    return;
  }
  pass.plan.why = "spec.ttlSecondsAfterFinished has passed since the job ended";
  pass.act(DeleteJob{.uid = pass.job().metadata.uid,
                     .resource_version = pass.job().metadata.resourceVersion});
}

std::shared_ptr<const Assignment> leaving(const Pass& pass, const WorldAssignment& world,
                                          int64_t exit_code) {
  Assignment leave = assignment_of(pass, world, "Exit");
  leave.exit_code = exit_code;
  return std::make_shared<const Assignment>(std::move(leave));
}

}  // namespace

// Asks the agents of the last round to exit, so that the pods end on their own and their logs stay.
// Deletes a pod whose agent can't be asked or does not exit in time.
Verdict ending(Pass& pass) {
  if (!is_finished(pass.status)) return Verdict::kNext;
  const bool complete = is_true(pass.status, kComplete);
  pass.plan.why = complete ? "the job is complete" : "the job has failed";
  const Result<WorldAssignment> world = world_of(pass, pass.status.round);
  const bool can_ask = pass.formed() && world.ok() && world_hash(*world) == pass.status.worldHash;
  const Result<WallTime> ended = wall_time_from_rfc3339(pass.status.completionTime);
  // The wall clock may have been set back since.
  const Duration since =
      ended.ok() ? std::max(pass.seen.wall_now - *ended, Duration{0}) : Duration::max();
  const int64_t protocol = can_ask ? protocol_of_exit(pass, *world) : kProtocolOldest;
  std::shared_ptr<const Assignment> leave;
  for (const PodView& pod : pass.seen.pods) {
    if (!pod.live()) continue;
    const bool ask = can_ask && is_in_round(pass, pod) && !pod.ip.empty() &&
                     since < pass.limits.exit_timeout && !is_out_of_reach(pass, pod, protocol);
    if (!ask) {
      pass.act(DeletePod{
          .name = pod.name, .uid = pod.uid, .grace_seconds = pod_grace_seconds(pass.spec())});
      continue;
    }
    pass.requeue(pass.now + (pass.limits.exit_timeout - since));
    if (is_leaving(pass, pod)) continue;
    if (leave == nullptr) leave = leaving(pass, *world, complete ? 0 : 1);
    pass.act(
        PutAssignment{.target = target_of(pod), .assignment = leave, .node_index = pod.node_index});
  }
  if (pass.plan.actions.empty()) expire(pass, since);
  return Verdict::kActed;
}

}  // namespace lockstep::plan
