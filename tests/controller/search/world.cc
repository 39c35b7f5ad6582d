#include "tests/controller/search/world.h"

#include <algorithm>

#include "controller/plan/conditions.h"
#include "controller/plan/names.h"
#include "tests/controller/search/properties.h"

namespace lockstep::search {
namespace {

constexpr WallTime kEpoch{std::chrono::hours(24 * 365 * 50)};
constexpr TimePoint kStart{std::chrono::hours(1)};
}  // namespace

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
  const auto stays = [this](const auto& entry) {
    return entry.second->pod->terminating && lost_pods.contains(entry.second->uid);
  };
  if (job == nullptr) return std::ranges::all_of(pods, stays);
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

World first_world(const sim::Mutation& mutation, Bounds bounds) {
  World world;
  world.now = kStart;
  world.faults_left = bounds.faults;
  world.edits_left = bounds.edits;
  world.others_left = bounds.others;
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
