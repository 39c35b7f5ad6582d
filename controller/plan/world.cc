#include "controller/plan/world.h"

#include <algorithm>
#include <numeric>

#include "common/api/round_members.h"
#include "common/layout/pipeline_schedule.h"
#include "controller/plan/conditions.h"
#include "controller/plan/round_nodes.h"
#include "controller/plan/servers.h"

namespace lockstep::plan {

namespace {

// Returns the distance from one pod's ports to the next one's. Loopback addresses belong to a local
// node, whose pods are processes of one machine. Programs that listen on all of its addresses, as
// most do, would collide on equal ports.
int64_t port_stride(const Pass& pass) {
  constexpr int64_t kPortMax = 65535;
  if (pass.spec().train) return 0;
  for (const PodView* pod : pass.in_round()) {
    if (pod == nullptr || !pod->ip.starts_with("127.")) return 0;
  }
  const int64_t first = pass.spec().rendezvous.port;
  const int64_t nodes = pass.round_nodes.empty() ? 0 : pass.round_nodes.back() + 1;
  const int64_t last = first + port_count(pass.spec()) * nodes - 1;
  const bool meets_agent = first <= kAgentPort && kAgentPort <= last;
  return last > kPortMax || meets_agent ? 0 : port_count(pass.spec());
}

// A smaller world of an elastic job has more micro-batches instead of larger ones, which might not
// fit. An interleaved pipeline chooses their number by itself.
int64_t micro_batch_of(const TrainingJobSpec& spec) {
  const BatchSpec& batch = spec.train->batch;
  const bool is_interleaved = spec.parallelism.virtualStages > 1;
  if (batch.micro > 0 || !spec.elastic || is_interleaved) return batch.micro;
  const int64_t stages = spec.parallelism.pipeline;
  const int64_t ranks = spec.nodes * processes_per_node(spec) / (stages * spec.parallelism.tensor);
  return automatic_micro_batch((batch.global + ranks - 1) / ranks, stages, 1);
}

// Returns the newest version that every agent of the round speaks, but at least the one that the
// world needs. An agent that has not answered yet may speak only the oldest one.
int64_t protocol_of_round(const Pass& pass, const WorldAssignment& world,
                          const WorkerWishes& wishes) {
  int64_t common = kProtocolNewest;
  for (const PodView* pod : pass.in_round()) {
    const AgentView* agent = pass.agent(pod);
    if (agent != nullptr && agent->has_unsupported_protocol()) continue;
    const bool has_answered = agent != nullptr && agent->state;
    common = std::min(common, has_answered ? agent->state->protocol : kProtocolOldest);
  }
  return std::max(common, protocol_needed(world, pass.spec().train, wishes));
}

const PodView* pod_of_node(const Pass& pass, int64_t node) {
  const auto index = static_cast<size_t>(node);
  return index < pass.current.size() ? pass.current[index] : nullptr;
}

// Rules about losses may have come after the round had begun, with agents that do not know them.
WorkerWishes wishes_of_exit(const Pass& pass) {
  WorkerWishes wishes = wishes_of_round(pass);
  wishes.losses = {};
  return wishes;
}

// Returns the nodes with which the round begins, or began. Servers that were added to it since are
// none of them, and those that have left it are.
std::vector<int64_t> nodes_of_world(const Pass& pass, bool is_current) {
  if (!is_current || !has_places(pass) || !has_views(pass)) return pass.round_nodes;
  std::vector<int64_t> nodes(static_cast<size_t>(pass.status.rendezvous->worldSize));
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

// Returns the view that agents get with this world. The spec may have other servers by now than the
// round that ends.
std::string view_to_send(const Pass& pass, const WorldAssignment& world) {
  const std::string& view = pass.status.serversView;
  return servers_view_from_text(view, server_count(world)).ok() ? view : "";
}

}  // namespace

WorkerWishes wishes_of_round(const Pass& pass) {
  WorkerWishes wishes = wishes_of(pass.spec());
  wishes.has_moved_server = !moved_places(pass).empty();
  wishes.has_new_worker = has_new_workers(pass);
  wishes.has_places = has_places(pass);
  return wishes;
}

// A server that has moved to another pod is a member with its first one.
Result<WorldAssignment> world_of(const Pass& pass, int64_t round) {
  const bool is_current = pass.formed() && round == pass.status.round;
  const auto moved = is_current ? moved_places(pass) : std::map<int64_t, ServerPlace>();
  WorldInput input{.job_uid = pass.job().metadata.uid, .round = round, .members = {}};
  const int64_t port = round_port(pass.spec(), round);
  const int64_t stride = port_stride(pass);
  for (const int64_t node : nodes_of_world(pass, is_current)) {
    ServerPlace place;
    if (const auto first = moved.find(node); first != moved.end()) {
      place = first->second;
    } else if (const PodView* pod = pod_of_node(pass, node); pod != nullptr && !pod->ip.empty()) {
      place = {.incarnation = pod->incarnation, .host = pod->ip};
    } else {
      return unavailable("[world] a pod has no address yet");
    }
    input.members.push_back({.index = node,
                             .incarnation = place.incarnation,
                             .host = place.host,
                             .port = port + node * stride,
                             .role = role_of_node(pass.spec(), node)});
  }
  return make_world(pass.spec(), input);
}

int64_t protocol_of_world(const Pass& pass, const WorldAssignment& world) {
  return protocol_needed(world, pass.spec().train, wishes_of_round(pass));
}

int64_t protocol_of_exit(const Pass& pass, const WorldAssignment& world) {
  return protocol_needed(world, pass.spec().train, wishes_of_exit(pass));
}

bool may_be_sent(const AgentView* agent, int64_t protocol) {
  if (protocol == kProtocolOldest) return true;
  return agent != nullptr && agent->state && agent->state->protocol >= protocol;
}

bool all_have_assignment(const Pass& pass) {
  return pass.formed() && std::ranges::all_of(pass.in_round(), [&](const PodView* pod) {
           return pass.current_report(pod) != nullptr;
         });
}

Assignment assignment_of(const Pass& pass, WorldAssignment world, std::string action) {
  const TrainingJobSpec& spec = pass.spec();
  CheckpointSpec checkpoint = spec.checkpoint;
  checkpoint.onPreemption.clear();  // grace_period_seconds tells it, also to older agents
  std::optional<TrainSpec> train = spec.train;
  if (train) train->recompute = recompute_of(train->recompute, world.layout.schedule);
  if (train) train->batch.micro = micro_batch_of(spec);
  const WorkerWishes wishes = action == "Exit" ? wishes_of_exit(pass) : wishes_of_round(pass);
  std::string view = view_to_send(pass, world);
  return {.protocol = protocol_of_round(pass, world, wishes),
          .action = std::move(action),
          .job_name = pass.job().metadata.name,
          .job_namespace = pass.job().metadata.namespace_,
          .hash = world_hash(world),
          .world = std::move(world),
          .train = std::move(train),
          .command = spec.command,
          .parameter_servers = spec.parameterServers,
          .servers_view = std::move(view),
          .variables = spec.rendezvous.variables,
          .restarts = pass.status.restarts,
          .max_restarts = spec.failure.maxRestarts,
          .checkpoint = std::move(checkpoint),
          .gpus_per_node = spec.gpusPerNode,
          .threads_per_process = spec.threadsPerProcess,
          .rendezvous_timeout_seconds = spec.rendezvous.timeoutSeconds,
          .hang_seconds = hang_seconds(spec),
          .command_hang_seconds = command_hang_seconds(spec),
          .losses = wishes.losses,
          .grace_period_seconds = grace_seconds(spec)};
}

AgentTarget target_of(const PodView& pod) {
  return {.pod_uid = pod.uid,
          .pod_name = pod.name,
          .ip = pod.ip,
          .node = pod.node_name,
          .is_signed = pod.is_signed,
          .is_encrypted = pod.is_encrypted,
          .job_uid = pod.owner_uid,
          .node_index = pod.node_index,
          .incarnation = pod.incarnation};
}

int64_t next_round(const Pass& pass) {
  constexpr int64_t kRoundMax = 1'000'000'000;  // larger numbers in reports are ignored
  int64_t round = pass.status.round;
  for (const PodView* pod : pass.current) {
    const AgentState* state = pass.last_report(pod);
    if (state != nullptr && state->round <= kRoundMax) round = std::max(round, state->round);
  }
  return round + 1;
}

void begin_round(Pass& pass, int64_t round) {
  const std::vector<int64_t> wanted = wanted_nodes(pass);
  if (can_begin(pass, wanted)) pass.round_nodes = wanted;
  const Result<WorldAssignment> world = world_of(pass, round);
  if (!world.ok()) {
    pass.status.worldHash.clear();
    // While others are to join, rendezvous tells which nodes the next round needs: keep it.
    const bool others_join = pass.round_nodes != wanted && is_subset(pass.round_nodes, wanted);
    if (!others_join) pass.status.rendezvous.reset();
    return;
  }
  pass.status.round = round;
  pass.status.serversView = view_of_new_round(pass);
  pass.status.worldHash = world_hash(*world);
  pass.status.rendezvous = RendezvousStatus{.host = world->members.front().host,
                                            .port = world->members.front().port,
                                            .worldSize = world->world_size(),
                                            .nodeIndices = node_indices_text(pass.round_nodes)};
  // The slow rank may be that of another node now.
  if (is_true(pass.status, kStraggling)) pass.set(kStraggling, false, "RoundEnded");
}

}  // namespace lockstep::plan
