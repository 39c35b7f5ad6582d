#include "controller/plan/world.h"

namespace lockstep {

Result<WorldAssignment> world_of(const Pass& pass, int64_t round) {
  WorldInput input{.job_uid = pass.job().metadata.uid, .round = round, .nodes = {}};
  for (const PodView* pod : pass.current) {
    if (pod == nullptr || pod->ip.empty()) return unavailable("[world] a pod has no address yet");
    input.nodes.push_back({.index = pod->node_index,
                           .incarnation = pod->incarnation,
                           .host = pod->ip,
                           .port = pass.spec().rendezvous.port});
  }
  return make_world(pass.spec(), input);
}

Assignment assignment_for(const Pass& pass, const WorldAssignment& world, int64_t node_index,
                          std::string action) {
  const TrainingJobSpec& spec = pass.spec();
  return {.action = std::move(action),
          .job_name = pass.job().metadata.name,
          .job_namespace = pass.job().metadata.namespace_,
          .node_index = node_index,
          .hash = world_hash(world),
          .world = world,
          .train = spec.train,
          .command = spec.command,
          .checkpoint = spec.checkpoint,
          .threads_per_process = spec.threadsPerProcess,
          .rendezvous_timeout_seconds = spec.rendezvous.timeoutSeconds,
          .grace_period_seconds = spec.terminationGracePeriodSeconds};
}

AgentTarget target_of(const PodView& pod) {
  return {.pod_uid = pod.uid, .pod_name = pod.name, .ip = pod.ip};
}

void begin_round(Pass& pass, int64_t round) {
  const Result<WorldAssignment> world = world_of(pass, round);
  if (!world.ok()) {
    pass.status.worldHash.clear();
    pass.status.rendezvous.reset();
    return;
  }
  pass.status.round = round;
  pass.status.worldHash = world_hash(*world);
  pass.status.rendezvous = RendezvousStatus{.host = world->nodes.front().host,
                                            .port = world->nodes.front().port,
                                            .worldSize = world->world_size()};
}

}  // namespace lockstep
