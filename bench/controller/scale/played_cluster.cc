#include "bench/controller/scale/played_cluster.h"

#include <algorithm>

#include "common/api/worker_config.h"
#include "controller/loop/informer.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_view.h"

namespace lockstep::bench {
namespace {

constexpr std::string_view kSender = "controller";

std::string name_of(const loop::ApiRequest& request) {
  switch (request.verb) {
    case loop::ApiVerb::kCreate:
      return "create " + std::string(request.type.plural);
    case loop::ApiVerb::kReplace:
      return "update " + std::string(request.type.plural);
    case loop::ApiVerb::kReplaceStatus:
      return "update " + std::string(request.type.plural) + "/status";
    case loop::ApiVerb::kDelete:
      return "delete " + std::string(request.type.plural);
    default:
      return "read " + std::string(request.type.plural);
  }
}

std::string address(int64_t number) {
  return "10." + std::to_string(number >> 16) + "." + std::to_string((number >> 8) & 255) + "." +
         std::to_string(number & 255);
}

}  // namespace

struct PlayedCluster::Watching {
  loop::WatchRequest request;
  loop::WatchHandler handler;
  int64_t version = 0;
  bool is_open = true;
  bool is_told = false;  // a delivery is scheduled
};

struct PlayedCluster::Handle final : loop::WatchHandle {
  explicit Handle(std::shared_ptr<Watching> watching) : watching(std::move(watching)) {}
  ~Handle() override { watching->is_open = false; }
  std::shared_ptr<Watching> watching;
};

PlayedCluster::PlayedCluster(loop::Timers& world, loop::Timers& loop, PlayedOptions options)
    : world_(world), loop_(loop), options_(options), limiter_(loop, options.rate) {
  store_.on_change = [this](loop::ResourceType type, const sim::FakeStore::Event& event) {
    on_change(type, event);
  };
}

void PlayedCluster::add_job(PlayedJob played) {
  TrainingJob job;
  job.spec.nodes = played.nodes;
  job.spec.elastic = played.elastic;
  if (played.elastic) job.spec.checkpoint.memory.emplace();
  job.spec.podTemplate = std::move(played.pod_template);
  TrainSpec train;
  train.model.layers = train.model.heads = 1;
  train.model.width = train.model.context = 8;
  train.data.path = "/data";
  train.steps = 1'000'000;
  train.batch.global = played.nodes;
  job.spec.train = train;
  store_.create(loop::kTrainingJobs,
                {{"apiVersion", kApiVersion},
                 {"kind", kKind},
                 {"metadata", {{"name", played.name}, {"namespace", "default"}}},
                 {"spec", to_json(job)["spec"]}},
                world_.wall_now());
}

void PlayedCluster::send(loop::ApiRequest request, loop::ApiClient::Done done) {
  const loop::ApiPriority priority = request.priority;
  limiter_.submit(
      [this, request = std::move(request), done = std::move(done)]() mutable {
        if (request.may_send && !request.may_send()) {
          limiter_.end_one();
          loop_.after(Duration{0}, [done] { done(loop::not_sent()); });
          return;
        }
        ++requests_[name_of(request)];
        if (request.make_body) request.body = std::exchange(request.make_body, nullptr)();
        world_.after(options_.latency,
                     [this, request = std::move(request), done] { serve(request, done); });
      },
      priority);
}

void PlayedCluster::serve(const loop::ApiRequest& request, loop::ApiClient::Done done) {
  loop::ApiReply reply =
      request.query.contains("dryRun")
          ? loop::ApiReply{.outcome = loop::ApiOutcome::kOk, .body = request.body}
          : store_.serve(request, world_.wall_now(), kSender);
  loop_.after(options_.latency, [this, done = std::move(done), reply = std::move(reply)]() mutable {
    limiter_.end_one();
    reply.body = Json(*reply.body);
    done(std::move(reply));
  });
}

std::unique_ptr<loop::WatchHandle> PlayedCluster::watch(loop::WatchRequest request,
                                                        loop::WatchHandler handler) {
  auto watching = std::make_shared<Watching>(
      Watching{.request = std::move(request), .handler = std::move(handler), .version = 0});
  watching->version = std::stoll(watching->request.query.at("resourceVersion"));
  watches_.push_back(watching);
  tell(watching);
  return std::make_unique<Handle>(std::move(watching));
}

// Delivers all events since the last delivery in one batch, after the latency.
void PlayedCluster::tell(const std::shared_ptr<Watching>& watching) {
  if (std::exchange(watching->is_told, true)) return;
  loop_.after(options_.latency, [this, watching] {
    watching->is_told = false;
    if (!watching->is_open) return;
    std::vector<sim::FakeStore::Event> events;
    if (!store_.events_since(watching->request, watching->version, events)) {
      watching->is_open = false;
      return watching->handler.on_end(
          {.outcome = loop::ApiOutcome::kExpired, .message = "too old"});
    }
    if (events.empty()) return;
    watching->version = events.back().version;
    std::vector<loop::WatchEvent> batch;
    for (const auto& event : events) batch.push_back({event.type, Json(*event.object)});
    watching->handler.on_events(std::move(batch));
  });
}

void PlayedCluster::on_change(loop::ResourceType type, const sim::FakeStore::Event& event) {
  std::erase_if(watches_, [](const auto& watching) { return !watching->is_open; });
  for (const auto& watching : watches_) {
    if (watching->request.type.plural == type.plural) tell(watching);
  }
  if (type.plural != loop::kPods.plural || event.type != loop::WatchEventType::kAdded) return;
  world_.after(options_.startup, [this, key = loop::object_key(*event.object)] { run_pod(key); });
}

void PlayedCluster::run_pod(const std::string& key) {
  const Json* pod = store_.find(loop::kPods, key);
  if (pod == nullptr) return;
  const std::optional<plan::PodView> view = plan::pod_view_from_json(*pod);
  if (!view) return;
  const std::string ip = address(++ips_);
  Agent& agent = agents_[ip];
  agent.job = plan::controller_name(*pod);
  agent.pod = key;
  agent.state.sequence = 1;
  agent.state.boot_id = view->uid;
  agent.state.job_uid = view->owner_uid;
  agent.state.node_index = view->node_index;
  agent.state.incarnation = view->incarnation;
  agent.state.phase = "Idle";
  store_.update(loop::kPods, key, [&](Json& running) {
    running["spec"]["nodeName"] = "machine-" + std::to_string(ips_ % 1000);
    running["status"] = {{"phase", "Running"}, {"podIP", ip}};
  });
}

void PlayedCluster::answer(loop::AgentClient::Done done, Result<AgentState> state) {
  loop_.after(options_.latency,
              [done = std::move(done), state = std::move(state)] { done(state); });
}

void PlayedCluster::changed(Agent& agent) {
  ++agent.state.sequence;
  if (agent.waiting) tell_report(agent);
}

void PlayedCluster::tell_report(Agent& agent) {
  loop_.after(options_.latency, [this, job = agent.job, state = agent.state,
                                 done = std::exchange(agent.waiting, nullptr)] {
    reported_.try_emplace(job, loop_.now());
    done(state);
  });
}

std::optional<TimePoint> PlayedCluster::take_report(const std::string& job) {
  const auto found = reported_.find(job);
  if (found == reported_.end()) return std::nullopt;
  const TimePoint at = found->second;
  reported_.erase(found);
  return at;
}

void PlayedCluster::put_assignment(const loop::AgentAddress& agent,
                                   const std::shared_ptr<const Assignment>& assignment,
                                   int64_t node_index, loop::AgentClient::Done done) {
  world_.after(options_.latency, [this, ip = agent.ip, assignment, node_index,
                                  done = std::move(done)] {
    const auto found = agents_.find(ip);
    if (found == agents_.end()) return answer(done, unavailable("nobody answers"));
    Agent& told = found->second;
    if (told.lost) return refuse(told, done);
    ++assignments_;
    if (assignment->world.round > told.state.round) {
      if (told.state.workers.size() == 1 && told.state.workers[0].phase == WorkerPhase::kTraining) {
        --training_;
      }
      told.state.round = assignment->world.round;
      told.state.hash = assignment->hash;
      told.state.phase = "Running";
      told.state.failed_seconds_ago = 0;
      WorkerState worker;
      worker.rank = rank_of(assignment->world, place_of(assignment->world, node_index).value(), 0);
      worker.running = true;
      worker.phase = WorkerPhase::kForming;
      told.state.workers = {worker};
      ++told.state.sequence;
    }
    answer(done, told.state);
    Round& round = rounds_[told.state.job_uid];
    if (assignment->world.round > round.number) round = {.number = assignment->world.round};
    round.told.insert(ip);
    if (round.told.size() == assignment->world.members.size()) begin_round(*assignment);
  });
}

void PlayedCluster::begin_round(const Assignment& assignment) {
  for (const std::string& ip : rounds_[assignment.world.job_uid].told) {
    Agent& agent = agents_.at(ip);
    agent.state.workers[0].phase = WorkerPhase::kTraining;
    agent.state.progress.emplace().steps = 1'000'000;
    ++training_;
    changed(agent);
    if (std::exchange(agent.reports, true)) continue;
    // Spreads the agents' reports over the interval.
    const auto first = options_.report_every * static_cast<int64_t>(polls_++ % 997) / 997;
    world_.after(first, [this, ip] { report(ip); });
  }
}

void PlayedCluster::report(const std::string& ip) {
  Agent& agent = agents_.at(ip);
  if (agent.lost) return;
  const bool goes_on = !rounds_.at(agent.state.job_uid).is_broken &&
                       agent.state.workers[0].phase == WorkerPhase::kTraining;
  if (goes_on) {
    agent.state.workers[0].step += 10;
    agent.state.progress->step = agent.state.workers[0].step;
    changed(agent);
  }
  world_.after(options_.report_every, [this, ip] { report(ip); });
}

PlayedCluster::Agent* PlayedCluster::find_agent(const std::string& name, int64_t node_index) {
  for (auto& [ip, agent] : agents_) {
    const bool is_meant = agent.job == name && agent.state.node_index == node_index;
    if (is_meant && !agent.lost && !agent.state.workers.empty()) return &agent;
  }
  return nullptr;
}

void PlayedCluster::fail_worker(Agent& agent) {
  WorkerState& worker = agent.state.workers[0];
  worker.phase = WorkerPhase::kForming;
  worker.running = false;
  agent.state.phase = "Failed";
  agent.state.failed_seconds_ago = 0.01;
}

void PlayedCluster::fail_rank(const std::string& name, int64_t node_index) {
  Agent* agent = find_agent(name, node_index);
  if (agent == nullptr) return;
  fail_worker(*agent);
  WorkerState& worker = agent->state.workers[0];
  worker.exit_code = 137;
  worker.signal = 9;
  worker.reason = "Signal";
  --training_;
  changed(*agent);
}

void PlayedCluster::lose_node(const std::string& name, int64_t node_index, Loss loss) {
  Agent* agent = find_agent(name, node_index);
  if (agent == nullptr) return;
  agent->lost = loss;
  --training_;
  rounds_.at(agent->state.job_uid).is_broken = loss != Loss::kFallsSilent;
  if (agent->waiting) refuse(*agent, std::exchange(agent->waiting, nullptr));
  if (loss == Loss::kPodFails || loss == Loss::kPodGoes) fail_peers(*agent);
  if (loss == Loss::kMachineStops) {
    world_.after(options_.peer_silence, [this, agent] { fail_peers(*agent); });
  }
  if (loss == Loss::kPodGoes) store_.remove(loop::kPods, agent->pod);
  if (loss != Loss::kPodFails) return;
  world_.after(options_.kubelet, [this, pod = agent->pod] {
    if (store_.find(loop::kPods, pod) == nullptr) return;
    store_.update(loop::kPods, pod, [](Json& failed) { failed["status"]["phase"] = "Failed"; });
  });
}

// All other ranks of its round lose their connection to this one, and exit.
void PlayedCluster::fail_peers(const Agent& lost) {
  for (const std::string& ip : rounds_.at(lost.state.job_uid).told) {
    Agent& peer = agents_.at(ip);
    if (peer.lost || peer.state.workers[0].phase != WorkerPhase::kTraining) continue;
    fail_worker(peer);
    WorkerState& worker = peer.state.workers[0];
    worker.exit_code = kExitPeerLost;
    worker.reason = "Error";
    worker.suspect_rank = lost.state.workers[0].rank;
    --training_;
    changed(peer);
  }
}

void PlayedCluster::refuse(const Agent& agent, loop::AgentClient::Done done) {
  const bool is_silent = agent.lost == Loss::kFallsSilent || agent.lost == Loss::kMachineStops;
  if (!is_silent) return answer(std::move(done), unavailable("refused"));
  constexpr Duration kDeadline = std::chrono::seconds(10);
  world_.after(kDeadline,
               [this, done = std::move(done)] { answer(done, timed_out("no answer in time")); });
}

void PlayedCluster::poll_state(const loop::AgentAddress& agent, int64_t since, Duration wait,
                               loop::AgentClient::Done done) {
  const auto found = agents_.find(agent.ip);
  if (found == agents_.end()) return answer(std::move(done), unavailable("nobody answers"));
  Agent& asked = found->second;
  if (asked.lost) return refuse(asked, std::move(done));
  if (asked.state.sequence > since) return answer(std::move(done), asked.state);
  asked.waiting = std::move(done);
  asked.poll = ++polls_;
  world_.after(wait, [this, ip = agent.ip, poll = asked.poll] {
    Agent& waiting = agents_.at(ip);
    if (waiting.poll == poll && waiting.waiting) {
      answer(std::exchange(waiting.waiting, nullptr), waiting.state);
    }
  });
}

void PlayedCluster::forget(const loop::AgentAddress&) {}

}  // namespace lockstep::bench
