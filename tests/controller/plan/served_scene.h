#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {

inline constexpr int64_t kWorkers = 2;

// Two workers and `servers` servers, which all train in round 1. With places, the agents have told
// what they know before it began.
inline Scene training(int64_t servers, int64_t copies = 1, bool with_places = false) {
  Scene scene(kWorkers);
  TrainingJobSpec& spec = scene.seen.job.spec;
  spec.parameterServers = ParameterServersSpec{.nodes = servers, .copies = copies};
  spec.train = TrainSpec{};
  spec.train->model.family = kLogisticRegression;
  spec.train->data.path = "/data";
  spec.train->data.format = "criteo";
  spec.train->optimizer.clipNorm = 0;
  scene.settle();
  for (int64_t i = 0; i < kWorkers + servers; ++i) {
    PodView& pod = scene.add_pod(i);
    if (i >= kWorkers) {
      pod.name = pod_name("job", MemberRole::kServer, i, 1);
    }
    AgentView view;
    view.state = std::make_shared<AgentState>();
    if (with_places) Scene::edit(view).job_uid = scene.seen.job.metadata.uid;
    view.last_heard = scene.now;
    scene.seen.agents[pod.uid] = view;
  }
  while (scene.settle()) {
  }
  for (int64_t i = 0; i < kWorkers + servers; ++i) {
    AgentState& state = scene.add_agent(i);
    state.servers_view = state.servers_started = 1;
    state.workers.front().servers_view = 1;
  }
  while (scene.settle()) {
  }
  return scene;
}

// A pod of that node runs at this address, in place of those before it, and its agent waits for an
// assignment.
inline void run_next_pod(Scene& scene, int64_t node, int64_t incarnation, const std::string& ip) {
  std::erase_if(scene.seen.pods, [&](const PodView& pod) { return pod.node_index == node; });
  PodView& pod = scene.add_pod(node, incarnation);
  const MemberRole role = node < kWorkers ? MemberRole::kWorker : MemberRole::kServer;
  pod.name = pod_name("job", role, node, incarnation);
  pod.ip = ip;
  pod.created_in_round = scene.status().round;
  AgentView view;
  view.state = std::make_shared<AgentState>();
  Scene::edit(view).job_uid = scene.seen.job.metadata.uid;
  view.last_heard = scene.now;
  scene.seen.agents[pod.uid] = view;
}

inline AgentState& server(Scene& scene, int64_t index) {
  return scene.agent(kWorkers + index);
}

// The agents of all members have this view, and so do the processes that run.
inline void follow(Scene& scene, int64_t view) {
  for (auto& [uid, agent] : scene.seen.agents) {
    AgentState& state = Scene::edit(agent);
    if (state.workers.empty()) continue;  // it has no assignment yet
    state.servers_view = view;
    if (state.workers.front().running) state.workers.front().servers_view = view;
  }
}

// The agent has started its server anew, and the server serves.
inline void start_anew(Scene& scene, int64_t index) {
  AgentState& state = server(scene, index);
  state.servers_started = state.servers_view;
  WorkerState& process = state.workers.front();
  process = {.rank = process.rank, .pid = 7, .running = true, .phase = WorkerPhase::kTraining};
  process.servers_view = state.servers_view;
}

inline void settle_all(Scene& scene) {
  while (scene.settle()) {
  }
}

}  // namespace lockstep::plan
