#include "tests/controller/support/scene.h"

#include "common/api/world_assignment.h"
#include "controller/plan/members.h"
#include "controller/plan/names.h"

namespace lockstep::plan {

Scene::Scene(int64_t nodes) {
  TrainingJob& job = seen.job;
  job.metadata.name = "job";
  job.metadata.uid = "uid-of-job";
  job.metadata.resourceVersion = "7";
  job.metadata.generation = 3;
  job.spec.nodes = nodes;
  job.spec.train.emplace();
  ModelSpec& model = job.spec.train->model;
  model.layers = model.heads = 1;
  model.width = model.context = 8;
  job.spec.train->data.path = "/data";
  job.spec.train->batch.global = 64 * nodes;
  seen.job_token = "token";
  seen.pod_check.emplace();
  seen.wall_now = WallTime(std::chrono::hours(24 * 365 * 50));
}

PodView& Scene::add_pod(int64_t index, int64_t incarnation) {
  PodView pod;
  pod.name = worker_pod_name("job", index, incarnation);
  pod.uid = pod.name + "-uid";
  pod.owner_uid = seen.job.metadata.uid;
  pod.node_index = index;
  pod.incarnation = incarnation;
  pod.created_in_round = 0;
  pod.phase = "Running";
  pod.ip = "10.0.0." + std::to_string(index + 1);
  pod.node_name = "machine-" + std::to_string(index);
  pod.scheduled = true;
  seen.pods.push_back(pod);
  return seen.pods.back();
}

AgentState& Scene::edit(AgentView& view) {
  if (view.state.use_count() != 1) view.state = std::make_shared<AgentState>(*view.state);
  return const_cast<AgentState&>(*view.state);  // no scene makes a const one
}

AgentState& Scene::agent(int64_t index) {
  const auto members = members_from_text(status().members);
  const std::string uid =
      worker_pod_name("job", index, members[static_cast<size_t>(index)]) + "-uid";
  return edit(seen.agents[uid]);
}

AgentState& Scene::add_agent(int64_t index, WorkerPhase phase) {
  const auto members = members_from_text(status().members);
  const int64_t incarnation = members[static_cast<size_t>(index)];
  AgentView view;
  AgentState state;
  state.job_uid = seen.job.metadata.uid;
  state.node_index = index;
  state.incarnation = incarnation;
  state.round = status().round;
  state.hash = status().worldHash;
  state.phase = "Running";
  WorkerState worker;
  worker.rank = index;
  worker.running = true;
  worker.phase = phase;
  state.workers = {worker};
  view.state = std::make_shared<AgentState>(std::move(state));
  view.state_at = view.last_heard = now;
  AgentView& place = seen.agents[worker_pod_name("job", index, incarnation) + "-uid"];
  place = std::move(view);
  return edit(place);
}

void Scene::form(int64_t round) {
  settle();  // records the members
  const auto members = members_from_text(status().members);
  for (size_t i = 0; i < members.size(); ++i) add_pod(static_cast<int64_t>(i), members[i]);
  status().round = round - 1;
  settle();  // records the round
}

void Scene::train(int64_t round) {
  form(round);
  for (int64_t i = 0; i < seen.job.spec.nodes; ++i) add_agent(i);
  settle();
}

void Scene::fail_worker(int64_t index, int64_t exit_code, double seconds_ago, std::string reason) {
  AgentState& state = agent(index);
  state.phase = "Failed";
  state.failed_seconds_ago = seconds_ago;
  WorkerState& worker = state.workers.front();
  worker.running = false;
  worker.exit_code = exit_code;
  worker.reason = std::move(reason);
  worker.log_tail = "the end of rank " + std::to_string(index);
}

void Scene::advance(Duration by) {
  now += by;
  seen.wall_now += by;
}

bool Scene::settle() {
  const Plan made = plan();
  const auto writes = only<WriteStatus>(made);
  if (writes.empty()) return false;
  status() = writes.front().status;
  return true;
}

bool is_decision(const Plan& plan) {
  bool writes = false;
  for (const Action& action : plan.actions) {
    const bool is_write = std::holds_alternative<WriteStatus>(action);
    if (!is_write && !std::holds_alternative<EmitEvent>(action)) return false;
    writes = writes || is_write;
  }
  return writes;
}

const Condition& condition(const TrainingJobStatus& status, const char* type) {
  static const Condition kNone;
  const Condition* found = find_condition(status, type);
  return found == nullptr ? kNone : *found;
}

TrainingJobStatus written(const Scene& scene, const Plan& plan) {
  const auto writes = only<WriteStatus>(plan);
  return writes.empty() ? scene.seen.job.status : writes.front().status;
}

}  // namespace lockstep::plan
