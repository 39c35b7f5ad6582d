#include "tests/controller/search/world.h"

#include <algorithm>

#include "controller/plan/conditions.h"
#include "controller/plan/names.h"
#include "tests/controller/search/digest.h"
#include "tests/controller/search/properties.h"

namespace lockstep::search {
namespace {

constexpr WallTime kEpoch{std::chrono::hours(24 * 365 * 50)};
constexpr TimePoint kStart{std::chrono::hours(1)};
// Longer spans of time change no plan: Limits::exit_timeout is the longest that does.
constexpr Duration kSpanMax = std::chrono::seconds(60);

uint64_t span(Duration since) {
  return static_cast<uint64_t>(std::clamp(since, -kSpanMax, kSpanMax).count());
}

// So that the values of one container are not taken for those of the next.
template <class Container>
void add_size(Digester& digest, const Container& container) {
  digest.add(static_cast<uint64_t>(container.size()));
}

void add_to(Digester& digest, const AgentState& state) {
  digest.add_signed(state.round).add(state.hash).add(state.phase);
  for (const WorkerState& worker : state.workers) {
    digest.add(static_cast<uint64_t>(worker.phase)).add(worker.running ? 1 : 0);
    digest.add_signed(worker.exit_code).add_signed(worker.suspect_rank);
  }
}

void add_to(Digester& digest, const Agent& agent) {
  digest.add(agent.ip).add(agent.is_silent ? 1 : 0);
  add_to(digest, agent.state);
  if (agent.old) add_to(digest, *agent.old);
}

// How long ago a job ended, and failed if that still delays something.
void add_job(Digester& digest, const World& world, const DocumentPtr& job) {
  if (job == nullptr) return;
  digest.add(job->digest).add(age(world.job_versions, job->version));
  if (job->completed_at) digest.add(span(world.wall_now() - *job->completed_at));
  const auto& failure = job->job.status.lastFailure;
  const bool delays = failure && failure->attempt > 1 && is_true(job->job.status, kRestarting);
  if (delays && job->failed_at) digest.add(span(world.wall_now() - *job->failed_at));
}

void add_pod(Digester& digest, const World& world, const DocumentPtr& pod) {
  digest.add(pod->digest).add(age(world.pod_versions, pod->version));
  // A resumed job waits for the end of the grace period.
  const auto& gone_by = pod->pod->gone_by;
  if (world.history.was_suspended && gone_by) {
    digest.add(span(std::max(*gone_by - world.wall_now(), Duration{0})));
  }
}

void add_run(Digester& digest, const World& world, const Run& run) {
  digest.add(run.order->digest);
  add_job(digest, world, run.order->job);
  const auto add_answer = [&](const Answer& answer) {
    digest.add(answer.digest).add(age(world.job_versions, answer.version));
    digest.add(age(world.pod_versions, answer.version));
  };
  add_size(digest, run.answers);
  for (const Answer& answer : run.answers) {
    digest.add(static_cast<uint64_t>(answer.number));
    add_answer(answer);
  }
  add_size(digest, run.open);
  for (const OpenRequest& open : run.open) {
    digest.add(static_cast<uint64_t>(open.number)).add(open.answer ? 1 : 0);
    if (open.answer) add_answer(*open.answer);
  }
}

void add_views(Digester& digest, const World& world) {
  add_size(digest, world.process.agents);
  for (const auto& [uid, view] : world.process.agents) {
    const auto agent = world.agents.find(uid);
    digest.add(uid).add(view.state ? 1 : 0);
    digest.add(span(world.now - view.last_heard));
    if (!view.state) continue;
    add_to(digest, *view.state);
    const bool failed = view.state->failed_seconds_ago > 0;
    if (failed) digest.add(span(world.now - view.state_at));
    if (agent == world.agents.end()) continue;
    digest.add_signed(agent->second.state.sequence - view.state->sequence);
  }
}

void add_history(Digester& digest, const History& history) {
  for (const auto& [round, record] : history.rounds) {
    digest.add_signed(round).add(record.hash).add(record.is_counted ? 1 : 0);
    add_size(digest, record.ended);
    for (const int64_t node : record.ended) digest.add_signed(node);
    add_size(digest, record.failed);
    for (const auto& [index, incarnation] : record.failed) {
      digest.add_signed(-index).add_signed(incarnation);
    }
  }
  for (const auto& [index, incarnation] : history.pods_counted) {
    digest.add_signed(index).add_signed(incarnation);
  }
  digest.add_signed(history.trained).add_signed(history.causes);
  digest.add(history.was_suspended ? 1 : 0);
}

}  // namespace

uint64_t age(const std::vector<int64_t>& versions, int64_t version) {
  return static_cast<uint64_t>(versions.end() -
                               std::upper_bound(versions.begin(), versions.end(), version));
}

void add_to(Digester& digest, const World& world, const Process& process) {
  digest.add(process.lists_jobs ? 1 : 0).add(process.lists_pods ? 1 : 0);
  digest.add(process.has_jobs ? 1 : 0).add(process.has_pods ? 1 : 0);
  digest.add(process.is_queued ? 1 : 0).add_signed(process.checked_generation);
  add_job(digest, world, process.job);
  digest.add(age(world.job_versions, process.jobs_position));
  digest.add(age(world.pod_versions, process.pods_position));
  add_size(digest, process.pods);
  for (const auto& [key, pod] : process.pods) add_pod(digest, world, pod);
  add_size(digest, process.coming_jobs);
  for (const WatchedChange& change : process.coming_jobs) {
    digest.add(change.is_deleted ? 1 : 0);
    add_job(digest, world, change.document);
  }
  add_size(digest, process.coming_pods);
  for (const WatchedChange& change : process.coming_pods) {
    digest.add(change.is_deleted ? 1 : 0);
    add_pod(digest, world, change.document);
  }
  digest.add(process.wakes_at ? span(*process.wakes_at - world.now) : 0);
  add_size(digest, process.absent_pods);
  for (const std::string& name : process.absent_pods) digest.add(name);
  if (process.refusal) digest.add(span(process.refusal->retry_at - world.now));
  add_views(digest, world);
  digest.add(process.run ? 1 : 0);
  if (process.run) add_run(digest, world, *process.run);
}

uint64_t World::digest() const {
  Digester digest;
  digest.add(static_cast<uint64_t>(faults_left)).add(job != nullptr ? 1 : 0);
  add_job(digest, *this, job);
  add_size(digest, pods);
  for (const auto& [key, pod] : pods) add_pod(digest, *this, pod);
  for (const auto& [key, count] : births) digest.add_signed(count);
  digest.add(static_cast<uint64_t>(store.all(loop::kSecrets).size()));
  add_size(digest, agents);
  for (const auto& [uid, agent] : agents) add_to(digest.add(uid), agent);
  for (const std::string& uid : lost_pods) digest.add("lost").add(uid);
  uint64_t of_strays = 0;  // in no order
  for (const RequestPtr& stray : strays) {
    Digester one;
    one.add(stray->digest).add(age(job_versions, stray->job->version));
    of_strays += one.value();
  }
  digest.add(of_strays);
  search::add_to(digest, *this, process);
  add_history(digest, history);
  return digest.value();
}

WallTime World::wall_now() const {
  return kEpoch + (now - kStart);
}

bool World::has_pod(const std::string& uid) const {
  return std::ranges::any_of(pods, [&](const auto& entry) { return entry.second->uid == uid; });
}

const Agent* World::agent_at(const std::string& ip) const {
  for (const auto& [uid, agent] : agents) {
    if (agent.ip == ip) return &agent;
  }
  return nullptr;
}

bool World::is_at_goal() const {
  if (process.run || process.is_queued) return false;
  if (job == nullptr) return pods.empty();
  const bool is_live =
      std::ranges::any_of(pods, [](const auto& entry) { return entry.second->pod->live(); });
  return is_true(job->job.status, kComplete) && !is_live;
}

void World::watch_store() {
  store.on_change = [this](loop::ResourceType type, const sim::FakeStore::Event& event) {
    changed(type, event);
  };
  // UIDs depend on names alone, so that worlds that differ only in the order of creation are equal.
  store.make_uid = [this](const std::string& key) {
    return key + "#" + std::to_string(++births[key]);
  };
}

void World::unwatch_store() {
  store.on_change = nullptr;
  store.make_uid = nullptr;
  store.compact();  // watches have their own copies
}

void World::changed(loop::ResourceType type, const sim::FakeStore::Event& event) {
  const bool is_job = type.plural == loop::kTrainingJobs.plural;
  if (!is_job && type.plural != loop::kPods.plural) return;
  const DocumentPtr document = read_document(!is_job, event.object, job.get());
  const bool is_deleted = event.type == loop::WatchEventType::kDeleted;
  (is_job ? job_versions : pod_versions).push_back(event.version);
  if (is_job) {
    job_changed(event, document);
    if (process.has_jobs && !process.lists_jobs)
      process.coming_jobs.push_back({document, is_deleted});
  } else {
    pod_changed(document, is_deleted);
    if (process.has_pods && !process.lists_pods)
      process.coming_pods.push_back({document, is_deleted});
  }
}

void World::job_changed(const sim::FakeStore::Event& event, const DocumentPtr& document) {
  job = event.type == loop::WatchEventType::kDeleted ? nullptr : document;
}

// A pod's agent ends with it, and no longer answers once the pod is being deleted.
void World::pod_changed(const DocumentPtr& document, bool is_deleted) {
  if (is_deleted) {
    pods.erase(document->key);
  } else {
    pods[document->key] = document;
  }
  if (is_deleted || !document->pod->live()) agents.erase(document->uid);
}

World first_world(const sim::Mutation& mutation, int faults) {
  World world;
  world.now = kStart;
  world.faults_left = faults;
  world.mutation = &mutation;
  world.change_store([&] {
    Json train = {{"model", {{"layers", 1}, {"heads", 1}, {"width", 8}, {"context", 8}}},
                  {"data", {{"path", "/data"}}},
                  {"steps", 1},
                  {"batch", {{"global", 120}}}};
    world.store.create(loop::kTrainingJobs,
                       {{"apiVersion", kApiVersion},
                        {"kind", kKind},
                        {"metadata", {{"name", "job"}, {"namespace", "default"}}},
                        {"spec", {{"nodes", 2}, {"train", std::move(train)}}}},
                       world.wall_now());
  });
  start_process(world);
  return world;
}

}  // namespace lockstep::search
