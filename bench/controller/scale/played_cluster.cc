#include "bench/controller/scale/played_cluster.h"

#include <algorithm>
#include <utility>

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
  job.spec.processesPerNode = played.processes;
  job.spec.elastic = played.elastic;
  if (played.elastic) job.spec.checkpoint.memory.emplace();
  if (!played.pod_template.empty()) templates_[played.name] = played.pod_template;
  job.spec.podTemplate = std::move(played.pod_template);
  TrainSpec train;
  train.model.layers = train.model.heads = 1;
  train.model.width = train.model.context = 8;
  train.data.path = "/data";
  train.steps = 1'000'000;
  train.batch.global = played.nodes * played.processes;
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
        std::string text;
        if (request.make_text) {
          text = std::exchange(request.make_text, nullptr)();
        } else if (!request.body.is_null()) {
          text = dump_json(std::exchange(request.body, {}));
        }
        world_.after(options_.latency,
                     [this, request = std::move(request), text = std::move(text), done]() mutable {
                       if (!text.empty()) request.body = parse_json(text).value();
                       serve(request, done);
                     });
      },
      priority);
}

void PlayedCluster::serve(const loop::ApiRequest& request, loop::ApiClient::Done done) {
  loop::ApiReply reply =
      request.query.contains("dryRun")
          ? loop::ApiReply{.outcome = loop::ApiOutcome::kOk, .body = request.body}
          : store_.serve(request, world_.wall_now(), kSender);
  const bool is_list = request.verb == loop::ApiVerb::kList;
  std::string text = served_text(templates_, request.type, *reply.body, is_list);
  reply.body = {};
  const bool is_read = request.verb == loop::ApiVerb::kGet;
  const kube::ReplyShape shape{.spec_kept = is_read ? "" : request.type.spec_kept,
                               .objects_at = is_list ? 2 : 0};
  loop_.after(options_.latency, [this, done = std::move(done), reply = std::move(reply),
                                 text = std::move(text), shape]() mutable {
    limiter_.end_one();
    reply.body = received(text, shape);
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
  world_.after(options_.latency, [this, watching] {
    watching->is_told = false;
    std::vector<sim::FakeStore::Event> events;
    const bool is_known = store_.events_since(watching->request, watching->version, events);
    if (is_known && events.empty()) return;
    if (is_known) watching->version = events.back().version;
    std::vector<std::pair<loop::WatchEventType, std::string>> texts;
    for (const auto& event : events) {
      texts.emplace_back(event.type,
                         served_text(templates_, watching->request.type, *event.object, false));
    }
    loop_.after(Duration{0}, [watching, is_known, texts = std::move(texts)] {
      if (!watching->is_open) return;
      if (!is_known) {
        watching->is_open = false;
        return watching->handler.on_end(
            {.outcome = loop::ApiOutcome::kExpired, .message = "too old"});
      }
      std::vector<loop::WatchEvent> batch;
      for (const auto& [type, text] : texts)
        batch.push_back({type, received(text, {watching->request.type.spec_kept, 0})});
      watching->handler.on_events(std::move(batch));
    });
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
  ips_of_job_[agent.job].push_back(ip);
  agent.pod = key;
  agent.state.sequence = 1;
  agent.state.boot_id = view->uid;
  agent.state.job_uid = view->owner_uid;
  agent.state.node_index = view->node_index;
  agent.state.incarnation = view->incarnation;
  agent.state.phase = "Idle";
  store_.update(loop::kPods, key, [&](Json& running) {
    running["spec"]["nodeName"] = "machine-" + std::to_string(ips_ % 1000);
    running["status"] = running_status(ip, world_.wall_now());
  });
}

void PlayedCluster::answer(loop::AgentClient::Done done, const Error& error) {
  loop_.after(options_.latency, [done = std::move(done), error] { done(error); });
}

// Answers a request from somebody who knows the state `since`.
void PlayedCluster::answer(const Agent& agent, int64_t since, loop::AgentClient::Done done) {
  const bool is_news = agent.state.sequence > since;
  if (is_news) ++reports_;
  loop_.after(options_.latency, [this, is_news, job = agent.job, done = std::move(done),
                                 text = dump_json(to_json(agent.state))] {
    if (is_news) reported_.try_emplace(job, loop_.now());
    done(agent_state_from_json(parse_json(text).value()));
  });
}

// The agent has more to tell than progress.
void PlayedCluster::changed(Agent& agent) {
  agent.beyond_progress = ++agent.state.sequence;
  if (agent.waiting) answer(agent, agent.since, std::exchange(agent.waiting, nullptr));
}

bool PlayedCluster::trains(const Agent& agent) {
  return !agent.state.workers.empty() && agent.state.workers[0].phase == WorkerPhase::kTraining;
}

void PlayedCluster::stop_training(Agent& agent) {
  if (trains(agent)) --training_;
  agent.at.reset();
}

// Publishes the newest step, as if it had been published when it was done.
void PlayedCluster::publish(Agent& agent) {
  const TimePoint now = world_.now();
  if (!agent.at || now < *agent.at || rounds_.at(agent.state.job_uid).is_broken) return;
  const int64_t steps = 1 + (now - *agent.at) / options_.report_every;
  *agent.at += steps * options_.report_every;
  agent.state.sequence += steps;
  for (WorkerState& worker : agent.state.workers) worker.step += steps;
  ProgressStatus& progress = *agent.state.progress;
  progress.step = agent.state.workers[0].step;
  progress.loss = 3 + 1.0 / static_cast<double>(1 + *progress.step % 1000);
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
  world_.after(
      options_.latency, [this, ip = agent.ip, assignment, node_index, done = std::move(done)] {
        const auto found = agents_.find(ip);
        if (found == agents_.end()) return answer(done, unavailable("nobody answers"));
        Agent& told = found->second;
        if (told.lost) return refuse(told, done);
        ++assignments_;
        if (assignment->action == "Exit") {
          told.state.phase = "Exiting";
          changed(told);
          world_.after(options_.kubelet, [this, pod = told.pod] { end_pod(pod, "Succeeded", 0); });
          return answer(told, 0, done);
        }
        if (assignment->world.round > told.state.round) {
          stop_training(told);
          told.state.round = assignment->world.round;
          told.state.hash = assignment->hash;
          told.state.phase = "Running";
          told.state.failed_seconds_ago = 0;
          const WorldAssignment& world = assignment->world;
          told.state.workers = new_workers(world, place_of(world, node_index).value());
          told.beyond_progress = ++told.state.sequence;
        }
        answer(told, 0, done);
        Round& round = rounds_[told.state.job_uid];
        if (assignment->world.round > round.number) round = {.number = assignment->world.round};
        round.told.insert(ip);
        if (round.told.size() == assignment->world.members.size()) begin_round(*assignment);
      });
}

void PlayedCluster::begin_round(const Assignment& assignment) {
  for (const std::string& ip : rounds_[assignment.world.job_uid].told) {
    Agent& agent = agents_.at(ip);
    for (WorkerState& worker : agent.state.workers) worker.phase = WorkerPhase::kTraining;
    if (!agent.state.progress) agent.state.progress = first_progress();
    agent.state.holdings = holdings();
    if (agent.state.workers[0].rank == 0) agent.state.storage.emplace().resumed_step = 0;
    ++training_;
    // Spreads the agents' reports over the interval.
    agent.at = world_.now() + options_.report_every * static_cast<int64_t>(spread_++ % 997) / 997;
    changed(agent);
  }
}

PlayedCluster::Agent* PlayedCluster::find_agent(const std::string& name, int64_t node_index) {
  for (const std::string& ip : ips_of_job_[name]) {
    Agent& agent = agents_.at(ip);
    const bool is_meant = agent.state.node_index == node_index;
    if (is_meant && !agent.lost && !agent.state.workers.empty()) return &agent;
  }
  return nullptr;
}

void PlayedCluster::fail_worker(Agent& agent) {
  stop_training(agent);
  for (WorkerState& worker : agent.state.workers) {
    worker.phase = WorkerPhase::kForming;
    worker.running = false;
    worker.exit_code = kExitPeerLost;
    worker.reason = "Error";
  }
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
  changed(*agent);
}

void PlayedCluster::finish_job(const std::string& name) {
  for (const std::string& ip : ips_of_job_[name]) {
    Agent& agent = agents_.at(ip);
    if (agent.lost || !trains(agent)) continue;
    stop_training(agent);
    for (WorkerState& worker : agent.state.workers) {
      worker.phase = WorkerPhase::kDone;
      worker.running = false;
      worker.reason = "Completed";
    }
    agent.state.phase = "Completed";
    changed(agent);
  }
}

void PlayedCluster::remove_job(const std::string& name) {
  store_.remove(loop::kTrainingJobs, "default/" + name);
  for (const std::string& ip : ips_of_job_[name]) {
    Agent& agent = agents_.at(ip);
    stop_training(agent);
    store_.remove(loop::kPods, agent.pod);
    rounds_.erase(agent.state.job_uid);
    if (agent.waiting) answer(std::exchange(agent.waiting, nullptr), unavailable("gone"));
    agents_.erase(ip);
  }
  ips_of_job_.erase(name);
}

void PlayedCluster::lose_node(const std::string& name, int64_t node_index, Loss loss) {
  Agent* agent = find_agent(name, node_index);
  if (agent == nullptr) return;
  stop_training(*agent);
  agent->lost = loss;
  rounds_.at(agent->state.job_uid).is_broken = loss != Loss::kFallsSilent;
  if (agent->waiting) refuse(*agent, std::exchange(agent->waiting, nullptr));
  if (loss == Loss::kPodFails || loss == Loss::kPodGoes) fail_peers(*agent);
  if (loss == Loss::kMachineStops) {
    world_.after(options_.peer_silence, [this, agent] { fail_peers(*agent); });
  }
  if (loss == Loss::kPodGoes) store_.remove(loop::kPods, agent->pod);
  if (loss != Loss::kPodFails) return;
  world_.after(options_.kubelet, [this, pod = agent->pod] { end_pod(pod, "Failed", 1); });
}

void PlayedCluster::end_pod(const std::string& pod, const char* phase, int64_t exit_code) {
  if (store_.find(loop::kPods, pod) == nullptr) return;
  store_.update(loop::kPods, pod, [&](Json& ended) {
    ended["status"]["phase"] = phase;
    ended["status"]["containerStatuses"][0]["state"] = {
        {"terminated",
         {{"exitCode", exit_code}, {"finishedAt", rfc3339(world_.wall_now())}, {"reason", phase}}}};
  });
}

// All other ranks of its round lose their connection to this one, and exit.
void PlayedCluster::fail_peers(const Agent& lost) {
  for (const std::string& ip : rounds_.at(lost.state.job_uid).told) {
    Agent& peer = agents_.at(ip);
    if (peer.lost || peer.state.workers[0].phase != WorkerPhase::kTraining) continue;
    fail_worker(peer);
    peer.state.workers[0].suspect_rank = lost.state.workers[0].rank;
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

void PlayedCluster::poll_state(const loop::AgentAddress& agent, const loop::StatePoll& poll,
                               loop::AgentClient::Done done) {
  world_.after(options_.latency, [this, ip = agent.ip, poll, done = std::move(done)]() mutable {
    accept_poll(ip, poll, std::move(done));
  });
}

void PlayedCluster::accept_poll(const std::string& ip, const loop::StatePoll& poll,
                                loop::AgentClient::Done done) {
  const auto found = agents_.find(ip);
  if (found == agents_.end()) {
    return answer(std::move(done), unavailable("nobody answers"));
  }
  Agent& asked = found->second;
  if (asked.lost) return refuse(asked, std::move(done));
  publish(asked);
  const Duration progress_after = options_.agents_are_old ? Duration{0} : poll.progress_after;
  const bool is_behind = poll.since < asked.beyond_progress;
  const bool has_progress = asked.state.sequence > poll.since && progress_after == Duration{0};
  if (is_behind || has_progress) return answer(asked, poll.since, std::move(done));
  asked.waiting = std::move(done);
  asked.since = poll.since;
  asked.poll = ++polls_;
  const TimePoint now = world_.now();
  TimePoint until = now + poll.wait;
  if (asked.state.sequence > poll.since) {
    until = std::min(until, now + progress_after);
  } else if (asked.at) {
    until = std::min(until, std::max(now + progress_after, *asked.at));
  }
  world_.at(until, [this, ip, number = asked.poll] {
    const auto waiting = agents_.find(ip);
    if (waiting == agents_.end()) return;
    Agent& agent = waiting->second;
    if (agent.poll != number || !agent.waiting) return;
    publish(agent);
    answer(agent, agent.since, std::exchange(agent.waiting, nullptr));
  });
}

void PlayedCluster::forget(const loop::AgentAddress&) {}

}  // namespace lockstep::bench
