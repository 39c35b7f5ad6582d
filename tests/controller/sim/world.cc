#include "tests/controller/sim/world.h"

#include <algorithm>

#include "common/api/training_job.h"
#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "controller/plan/members.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_view.h"

namespace lockstep::sim {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(500);

bool is_live(const Json& pod) {
  const std::string phase = pod.value("status", Json::object()).value("phase", "Pending");
  return phase != "Succeeded" && phase != "Failed" &&
         !pod["metadata"].contains("deletionTimestamp");
}

}  // namespace

World::World(ManualClock& clock, uint64_t seed) : timers(clock), random(seed), clock_(clock) {
  store.on_write = [this](const ApiRequest& request, const Json* stored) {
    check_write(request, stored);
  };
  timers.after(kTick, [this] { tick(); });
}

std::string World::now() const {
  return rfc3339(clock_.wall_now());
}

bool World::chance(double probability) {
  return !is_quiet && static_cast<double>(random.uniform()) < probability;
}

Duration World::delay(Duration most) {
  return Duration(1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(most.count()))));
}

std::string World::add_job(const std::string& name, int64_t nodes, int64_t steps,
                           int64_t max_restarts) {
  TrainingJob job;
  job.metadata.name = name;
  job.spec.nodes = nodes;
  job.spec.failure.maxRestarts = max_restarts;
  job.spec.train.emplace();
  ModelSpec& model = job.spec.train->model;
  model.layers = model.heads = 1;
  model.width = model.context = 8;
  job.spec.train->data.path = "/data";
  job.spec.train->steps = steps;
  job.spec.train->batch.global = 64 * nodes;
  steps_wanted_[name] = steps;
  Json document = to_json(job);
  document["metadata"] = {{"name", name}, {"namespace", "default"}};
  document.erase("status");
  store.create(kTrainingJobs, std::move(document), now());
  return "default/" + name;
}

Json World::status_of(const std::string& job_key) {
  const Json* job = store.find(kTrainingJobs, job_key);
  return job == nullptr ? Json::object() : job->value("status", Json::object());
}

size_t World::live_pods() const {
  size_t count = 0;
  for (const auto& [key, pod] : const_cast<FakeStore&>(store).all(kPods)) count += is_live(pod);
  return count;
}

void World::touch(Agent& agent) {
  ++agent.state.sequence;
}

void World::tick() {
  run_kubelet();
  run_agents();
  if (!is_quiet) cause_failures();
  timers.after(kTick, [this] { tick(); });
}

void World::start_pod(const std::string& key, Json& pod) {
  auto agent = std::make_unique<Agent>();
  const std::optional<PodView> view = pod_view_from_json(pod);
  agent->pod_key = key;
  agent->pod_uid = view->uid;
  agent->ip = "10.0.0." + std::to_string(++ips_);
  agent->state.boot_id = view->uid;
  agent->state.sequence = 1;
  agent->state.job_uid = view->owner_uid;
  agent->state.node_index = view->node_index;
  agent->state.incarnation = view->incarnation;
  agent->state.phase = "Idle";
  store.update(kPods, key, [&](Json& object) {
    object["spec"]["nodeName"] = "machine-" + std::to_string(ips_ % 7);
    object["status"] = {{"phase", "Running"}, {"podIP", agent->ip}};
  });
  agents_[view->uid] = std::move(agent);
}

void World::run_kubelet() {
  std::vector<std::string> keys;
  for (const auto& [key, pod] : store.all(kPods)) keys.push_back(key);
  for (const std::string& key : keys) {
    Json& pod = *store.find(kPods, key);
    const std::string uid = pod["metadata"]["uid"];
    const auto agent = agents_.find(uid);
    if (pod["metadata"].contains("deletionTimestamp")) {
      const bool hangs = agent != agents_.end() && agent->second->is_silent;
      if (hangs || random.below(4) != 0) continue;
      agents_.erase(uid);
      store.remove(kPods, key);
    } else if (agent == agents_.end() && is_live(pod) && random.below(3) == 0) {
      start_pod(key, pod);
    }
  }
}

World::Agent* World::agent_at(const std::string& ip) {
  for (auto& [uid, agent] : agents_) {
    if (agent->ip != ip || agent->is_silent) continue;
    const Json* pod = store.find(kPods, agent->pod_key);
    return pod != nullptr && is_live(*pod) ? agent.get() : nullptr;
  }
  return nullptr;
}

void World::end_agent(Agent& agent, int exit_code) {
  agent.state.phase = "Exiting";
  store.update(kPods, agent.pod_key, [&](Json& pod) {
    pod["status"]["phase"] = exit_code == 0 ? "Succeeded" : "Failed";
    pod["status"]["containerStatuses"] = Json::array(
        {{{"name", kNodeContainer}, {"state", {{"terminated", {{"exitCode", exit_code}}}}}}});
  });
}

Result<AgentState> World::put(const std::string& ip, const Assignment& assignment) {
  Agent* agent = agent_at(ip);
  if (agent == nullptr) return unavailable("nobody answers");
  const int64_t round = assignment.world.round;
  const std::string& uid = assignment.world.job_uid;
  if (hashes_[uid][round] != assignment.hash) {
    violations.push_back("a round was told to an agent before it was recorded: " +
                         std::to_string(round));
  }
  AgentState& state = agent->state;
  if (round < state.round || (round == state.round && assignment.hash != state.hash)) {
    return conflict("an older round, or another hash");
  }
  if (assignment.action == "Exit") {
    end_agent(*agent, static_cast<int>(assignment.exit_code));
    touch(*agent);
    return state;
  }
  if (round == state.round) return state;
  agent->assignment = assignment;
  agent->assigned_at = clock_.now();
  state.round = round;
  state.hash = assignment.hash;
  state.phase = "Running";
  state.failed_seconds_ago = 0;
  WorkerState worker;
  worker.rank = assignment.node_index;
  worker.running = true;
  worker.phase = WorkerPhase::kForming;
  state.workers = {worker};
  touch(*agent);
  return state;
}

void World::kill_worker(Agent& agent) {
  WorkerState& worker = agent.state.workers.front();
  worker.running = false;
  worker.exit_code = 137;
  worker.signal = 9;
  worker.reason = "Signal";
  worker.log_tail = "killed by the simulation";
  agent.state.phase = "Failed";
  agent.failed_at = clock_.now();
  touch(agent);
  ++failures_caused;
}

void World::fail_peers(const std::vector<Agent*>& agents) {
  for (Agent* agent : agents) {
    WorkerState& worker = agent->state.workers.front();
    if (!worker.running || random.below(3) == 0) continue;
    worker.running = false;
    worker.exit_code = kExitPeerLost;
    worker.reason = "Error";
    agent->state.phase = "Failed";
    agent->failed_at = clock_.now();
    touch(*agent);
  }
}

void World::train(const std::vector<Agent*>& agents) {
  const std::string uid = agents.front()->state.job_uid;
  const int64_t wanted = steps_wanted_[agents.front()->assignment.job_name];
  int64_t step = checkpoints_[uid];
  for (Agent* agent : agents) step = std::max(step, agent->state.workers.front().step);
  step = std::min(step + 1, wanted);
  if (step % 5 == 0) checkpoints_[uid] = std::max(checkpoints_[uid], step);
  for (Agent* agent : agents) {
    WorkerState& worker = agent->state.workers.front();
    worker.phase = WorkerPhase::kTraining;
    worker.step = step;
    agent->state.progress = ProgressStatus{
        .step = step, .steps = wanted, .loss = {}, .validationLoss = {}, .updatedAt = ""};
    if (step == wanted) {
      worker.running = false;
      worker.reason = "Completed";
      worker.phase = WorkerPhase::kDone;
      agent->state.phase = "Completed";
    }
    touch(*agent);
  }
  if (step == wanted)
    completed_[uid].insert({agents.front()->state.round, agents.front()->state.hash});
}

void World::run_agents() {
  // Formations: who was told the same round and hash.
  std::map<std::pair<std::string, std::string>, std::vector<Agent*>> formations;
  for (auto& [uid, agent] : agents_) {
    if (agent->state.phase != "Running" && agent->state.phase != "Failed") continue;
    const Json* pod = store.find(kPods, agent->pod_key);
    if (pod == nullptr || !is_live(*pod) || agent->is_silent) continue;
    agent->state.failed_seconds_ago =
        agent->state.phase == "Failed" ? to_seconds(clock_.now() - agent->failed_at) : 0;
    formations[{agent->state.job_uid, agent->state.hash}].push_back(agent.get());
  }
  for (auto& [key, agents] : formations) {
    const size_t size = agents.front()->assignment.world.nodes.size();
    const bool all_run =
        agents.size() == size && std::all_of(agents.begin(), agents.end(), [](const Agent* agent) {
          return agent->state.phase == "Running";
        });
    if (all_run) {
      train(agents);
      continue;
    }
    // Someone is missing: at once for those who trained with him, else when forming takes too long.
    std::vector<Agent*> waiting;
    for (Agent* agent : agents) {
      const bool had_formed = agent->state.workers.front().phase >= WorkerPhase::kTraining;
      const bool is_late = clock_.now() - agent->assigned_at > std::chrono::seconds(60);
      if (had_formed || is_late) waiting.push_back(agent);
    }
    fail_peers(waiting);
  }
}

void World::cause_failures() {
  for (auto& [uid, agent] : agents_) {
    const Json* pod = store.find(kPods, agent->pod_key);
    if (pod == nullptr || !is_live(*pod) || agent->is_silent) continue;
    if (agent->state.phase == "Running" && chance(faults.worker_death)) kill_worker(*agent);
    if (chance(faults.pod_loss)) {
      ++failures_caused;
      store.update(kPods, agent->pod_key,
                   [&](Json& object) { object["metadata"]["deletionTimestamp"] = now(); });
    } else if (chance(faults.node_loss)) {
      ++failures_caused;
      agent->is_silent = true;
    }
  }
}

void World::check_pod(const Json& pod) {
  const std::optional<PodView> view = pod_view_from_json(pod);
  const std::string job_name = pod["metadata"]["labels"][kJobNameLabel];
  const Json* job = store.find(kTrainingJobs, "default/" + job_name);
  if (!view || job == nullptr || view->owner_uid != (*job)["metadata"]["uid"]) {
    violations.push_back("a pod that is nobody's: " + pod.dump());
    return;
  }
  const auto members = members_from_text((*job)["status"].value("members", ""));
  const auto index = static_cast<size_t>(view->node_index);
  if (index >= members.size() || members[index] < view->incarnation) {
    violations.push_back("a pod whose incarnation was not recorded: " + view->name);
  }
  for (const auto& [key, other] : store.all(kPods)) {
    const std::optional<PodView> same = pod_view_from_json(other);
    if (same && same->owner_uid == view->owner_uid && same->node_index == view->node_index &&
        same->incarnation == view->incarnation && same->live()) {
      violations.push_back("two live pods of one incarnation: " + view->name);
    }
  }
}

void World::check_status(const std::string& key, const Json& before, const Json& after) {
  const int64_t round = int_or(after, "round", 0);
  const std::string hash = after.value("worldHash", "");
  const Json* job = store.find(kTrainingJobs, key);
  const std::string uid = (*job)["metadata"]["uid"];
  if (round < int_or(before, "round", 0)) violations.push_back("the round went back");
  if (int_or(after, "restarts", 0) < int_or(before, "restarts", 0)) {
    violations.push_back("restarts went back");
  }
  if (int_or(after, "restarts", 0) > int_or(before, "restarts", 0) + 1) {
    violations.push_back("one write counted two restarts");
  }
  std::string& known = hashes_[uid][round];
  if (!known.empty() && !hash.empty() && known != hash) {
    violations.push_back("one round with two hashes");
  }
  if (!hash.empty()) known = hash;
  const auto is_set = [](const Json& status, const char* type) {
    for (const Json& condition : status.value("conditions", Json::array())) {
      if (condition["type"] == type && condition["status"] == "True") return true;
    }
    return false;
  };
  for (const char* type : {kComplete, kFailed}) {
    if (is_set(before, type) && !is_set(after, type)) {
      violations.push_back(std::string(type) + " was taken back");
    }
  }
  if ((is_set(before, kComplete) || is_set(before, kFailed)) &&
      round != int_or(before, "round", 0)) {
    violations.push_back("a finished job began another round");
  }
  if (is_set(after, kComplete) && !completed_[uid].contains({round, hash})) {
    violations.push_back("Complete, but the round was not completed");
  }
}

void World::check_write(const ApiRequest& request, const Json* stored) {
  if (request.type.plural == kPods.plural && request.verb == ApiVerb::kCreate) {
    check_pod(request.body);
  }
  if (request.type.plural == kPods.plural && request.verb == ApiVerb::kDelete &&
      !request.body.contains("preconditions")) {
    violations.push_back("a delete without a UID");
  }
  if (request.type.plural == kTrainingJobs.plural && stored != nullptr) {
    check_status(request.namespace_ + "/" + request.name, stored->value("status", Json::object()),
                 request.body.value("status", Json::object()));
  }
}

}  // namespace lockstep::sim
