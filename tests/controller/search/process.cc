#include "tests/controller/search/process.h"

#include <algorithm>

#include "tests/controller/search/carry_out.h"
#include "tests/controller/search/digest.h"
#include "tests/controller/search/without_policies.h"
#include "tests/controller/search/world.h"

namespace lockstep::search {
namespace {

using sim::member;

constexpr Duration kRecheck = std::chrono::seconds(20);  // ControllerOptions::recheck
constexpr Duration kRefusal = std::chrono::seconds(1);   // ControllerOptions::refusal_first
// A wake-up that is later than this is for progress alone, which is not written here.
constexpr Duration kWakeMax = std::chrono::minutes(10);
constexpr char kToken[] = "token";

int64_t version_of(const Json& object) {
  return std::stoll(string_or(member(object, "metadata"), "resourceVersion", "0"));
}

uint64_t pod_digest(const std::string& key, const plan::PodView& pod) {
  Digester digest;
  digest.add(key).add(pod.phase).add(pod.ip).add(pod.reason);
  digest.add(pod.terminating ? 1 : 0).add_signed(pod.exit_code.value_or(-1));
  return digest.add_signed(pod.created_in_round.value_or(-1)).value();
}

void read_job(const Json& json, const Document* known, Document& document) {
  Result<TrainingJob> job = stored_training_job_from_json(json);
  if (job.ok()) {
    document.job = std::move(job).value();
  } else {
    document.problems = {job.error().message};
  }
  const ObjectMeta& metadata = document.job.metadata;
  const bool is_same = known != nullptr && known->job.metadata.generation == metadata.generation;
  document.spec_problems = is_same ? known->spec_problems : plan::spec_problems(document.job);
  const TrainingJobStatus& status = document.job.status;
  const auto time = [](const std::string& text) {
    const Result<WallTime> read = wall_time_from_rfc3339(text);
    return read.ok() ? std::optional(*read) : std::nullopt;
  };
  document.completed_at = time(status.completionTime);
  if (status.lastFailure) document.failed_at = time(status.lastFailure->time);
  const auto& spec = document.job.spec;  // all else in it is constant
  Digester digest;
  digest.add(document.uid).add_signed(metadata.generation);
  digest.add(spec.suspend ? 1 : 0).add_signed(spec.nodes);
  document.exact_digest = Digester(digest).add(digest_of(status)).value();
  document.digest = digest.add(digest_of_stored(status)).value();
}

void wake_at(const World& world, Process& process, TimePoint when) {
  if (when > world.now + kWakeMax) return;
  if (when <= world.now) {
    process.is_queued = true;
  } else if (!process.wakes_at || when < *process.wakes_at) {
    process.wakes_at = when;
  }
}

bool reads_pods(const Run& run) {
  return std::ranges::any_of(run.open, [](const OpenRequest& open) {
    return open.request->assignment == nullptr && open.request->api.verb == loop::ApiVerb::kGet;
  });
}

// The informers' rules for what they learn (informer.h), and what the controller does about it.
class Cache final : public CacheWithoutPolicies {
 public:
  explicit Cache(World& world) : world_(world), process_(world.process) {}

  void put_job(const DocumentPtr& job) {
    if (process_.job != nullptr && process_.job->version >= job->version) return;
    process_.job = job;
    process_.is_queued = true;
  }
  void put_pod(const DocumentPtr& pod) {
    DocumentPtr& known = process_.pods[pod->key];
    if (known != nullptr && known->version >= pod->version) return;
    known = pod;
    process_.absent_pods.erase(pod->pod->name);
    queue();
  }
  void erase_job(const std::string& uid) {
    if (process_.job == nullptr || process_.job->uid != uid) return;
    process_.job = nullptr;
    process_.absent_pods.clear();
    process_.checked_generation = process_.refused_generation = 0;
    process_.refusal.reset();
    process_.is_queued = true;
  }
  void erase_pod(const std::string& key, const std::string& uid) {
    const auto known = process_.pods.find(key);
    if (known == process_.pods.end() || known->second->uid != uid) return;
    process_.pods.erase(known);
    queue();
  }

  void job_written(const loop::SharedJson& job) override {
    if (process_.job != nullptr || version_of(job) > process_.jobs_position) put_job(read(job));
  }
  void job_read(const loop::SharedJson& job) override { put_job(read(job)); }
  void job_gone(const loop::JobContext& job) override { erase_job(job.uid); }
  void pod_written(const loop::SharedJson& pod) override {
    const DocumentPtr document = read_document(true, pod, nullptr);
    const bool is_known = process_.pods.contains(document->key);
    if (is_known || document->version > process_.pods_position) put_pod(document);
  }
  void pod_read(const loop::SharedJson& pod) override {
    const DocumentPtr document = read_document(true, pod, nullptr);
    const auto end = process_.ends.find(document->key);
    if (end == process_.ends.end() || document->version >= end->second) put_pod(document);
  }
  void pod_gone(const loop::JobContext& job, const std::string& name,
                const std::string& uid) override {
    erase_pod(job.namespace_ + "/" + name, uid);
  }
  void pod_absent(const loop::JobContext&, const std::string& name) override {
    process_.absent_pods.insert(name);
    process_.is_queued = true;
  }
  void pod_refused(const loop::JobContext&, const std::string& reason,
                   const std::string& message) override {
    if (process_.job == nullptr) return;
    process_.refusal = {.reason = reason, .message = message, .retry_at = world_.now + kRefusal};
    process_.refused_generation = process_.job->job.metadata.generation;
  }
  void create_failed(const loop::JobContext&, const std::string&) override {}
  bool status_refused(const loop::JobContext&) override { return false; }
  void pod_checked(const loop::JobContext&, int64_t generation, const std::string&, bool) override {
    process_.checked_generation = generation;
    process_.is_queued = true;
  }
  void pod_accepted(const loop::JobContext&) override {
    if (!process_.refusal) return;
    process_.refusal.reset();
    process_.is_queued = true;
  }
  void agent_reported(const loop::JobContext&, const std::string& uid,
                      const AgentState& state) override {
    hear_agent(world_, uid, state);
  }

 private:
  void queue() {
    if (process_.job != nullptr) process_.is_queued = true;
  }
  DocumentPtr read(const loop::SharedJson& job) const {
    const DocumentPtr& newest = world_.job;
    if (newest != nullptr && newest->version == version_of(job)) return newest;
    return read_document(false, job, newest.get());
  }

  World& world_;
  Process& process_;
};

plan::Observed observe(const World& world) {
  const Process& process = world.process;
  const Document& job = *process.job;
  plan::Observed seen{.job = job.job,
                      .problems = job.problems,
                      .spec_problems = job.spec_problems,
                      .agents = process.agents,
                      .absent_pods = process.absent_pods,
                      .job_token = kToken,
                      .wall_now = world.wall_now(),
                      .may_write_progress = false,
                      .progress_writable_at = TimePoint::max()};
  const int64_t generation = job.job.metadata.generation;
  if (process.refused_generation == generation) seen.refusal = process.refusal;
  if (process.checked_generation == generation) seen.pod_check.emplace();
  for (const auto& [key, pod] : process.pods) {
    if (pod->pod->owner_uid == job.uid) seen.pods.push_back(*pod->pod);
  }
  return seen;
}

void watch_agents(World& world, const std::vector<plan::AgentTarget>& targets) {
  std::map<std::string, plan::AgentView> next;
  for (const plan::AgentTarget& target : targets) {
    const auto known = world.process.agents.find(target.pod_uid);
    const bool is_known = known != world.process.agents.end();
    next[target.pod_uid] = is_known ? known->second : plan::AgentView{.last_heard = world.now};
  }
  world.process.agents = std::move(next);
}

// Takes the consequences of the run's last answer, or of its beginning.
void proceed(World& world) {
  Process& process = world.process;
  Cache cache(world);
  Run& run = *process.run;
  CarriedOut result = carry_out(*run.order, run.answers, cache, *world.mutation);
  for (auto& [number, request] : result.sent) {
    run.open.push_back({.number = number, .request = std::move(request)});
  }
  if (!process.run || !reads_pods(run)) process.ends.clear();
  if (!result.done) return;
  wake_at(world, process, world.now + (result.done->ok ? kRecheck : kRetryDelay));
  process.run.reset();
}

}  // namespace

DocumentPtr read_document(bool is_pod, const loop::SharedJson& json, const Document* known) {
  auto document = std::make_shared<Document>();
  const Json& metadata = member(*json, "metadata");
  document->version = version_of(*json);
  document->key = string_or(metadata, "namespace", "") + "/" + string_or(metadata, "name", "");
  document->uid = string_or(metadata, "uid", "");
  document->json = json;
  document->is_pod = is_pod;
  if (is_pod) {
    document->pod = plan::pod_view_from_json(*json);
    if (!document->pod) document->pod.emplace();
    document->digest = document->exact_digest = pod_digest(document->key, *document->pod);
  } else {
    read_job(*json, known, *document);
  }
  return document;
}

void start_process(World& world) {
  world.process = Process{};
}

void list_jobs(World& world) {
  Process& process = world.process;
  process.lists_jobs = false;
  process.has_jobs = true;
  process.coming_jobs.clear();
  process.jobs_position = world.store.version();
  Cache cache(world);
  if (world.job != nullptr) {
    cache.put_job(world.job);
  } else if (process.job != nullptr) {
    cache.erase_job(process.job->uid);
  }
}

void list_pods(World& world) {
  Process& process = world.process;
  process.lists_pods = false;
  process.has_pods = true;
  process.coming_pods.clear();
  process.pods_position = world.store.version();
  Cache cache(world);
  std::vector<DocumentPtr> gone;
  for (const auto& [key, pod] : process.pods) {
    if (!world.pods.contains(key)) gone.push_back(pod);
  }
  for (const DocumentPtr& pod : gone) cache.erase_pod(pod->key, pod->uid);
  for (const auto& [key, pod] : world.pods) cache.put_pod(pod);
}

void deliver_job_event(World& world) {
  Process& process = world.process;
  const WatchedChange change = process.coming_jobs.front();
  process.coming_jobs.erase(process.coming_jobs.begin());
  process.jobs_position = change.document->version;
  Cache cache(world);
  if (change.is_deleted) return cache.erase_job(change.document->uid);
  cache.put_job(change.document);
}

void deliver_pod_event(World& world) {
  Process& process = world.process;
  const WatchedChange change = process.coming_pods.front();
  process.coming_pods.erase(process.coming_pods.begin());
  process.pods_position = change.document->version;
  Cache cache(world);
  if (change.is_deleted) {
    if (process.run && reads_pods(*process.run)) {
      process.ends[change.document->key] = change.document->version;
    }
    return cache.erase_pod(change.document->key, change.document->uid);
  }
  cache.put_pod(change.document);
}

void make_plan(World& world) {
  Process& process = world.process;
  process.is_queued = false;
  if (process.job == nullptr) {
    process.wakes_at.reset();
    return watch_agents(world, {});
  }
  const plan::Observed seen = observe(world);
  plan::Plan plan = world.mutation->plan(seen, world.now, world.mutation->limits);
  watch_agents(world, plan.watch);
  if (plan.requeue_at) wake_at(world, process, *plan.requeue_at);
  if (plan.actions.empty()) return;
  auto order = std::make_shared<Order>();
  const ObjectMeta& metadata = process.job->job.metadata;
  order->context = {.key = process.job->key,
                    .namespace_ = metadata.namespace_,
                    .name = metadata.name,
                    .uid = metadata.uid,
                    .tokens = {kToken},
                    .document = {process.job->json, /*packs=*/false}};
  order->job = process.job;
  order->digest = digest_of(plan.actions);
  order->uids = uids_in(plan.actions);
  order->actions = std::move(plan.actions);
  process.run = Run{.order = std::move(order)};
  proceed(world);
}

bool plan_changes_nothing(const World& world) {
  const Process& process = world.process;
  if (process.job == nullptr) return process.agents.empty() && !process.wakes_at;
  const plan::Plan plan = world.mutation->plan(observe(world), world.now, world.mutation->limits);
  const auto& wakes_at = process.wakes_at;
  const bool wakes_earlier = plan.requeue_at && *plan.requeue_at <= world.now + kWakeMax &&
                             (!wakes_at || *plan.requeue_at < *wakes_at);
  const auto is_known = [&](const plan::AgentTarget& target) {
    return process.agents.contains(target.pod_uid);
  };
  return plan.actions.empty() && !wakes_earlier && plan.watch.size() == process.agents.size() &&
         std::ranges::all_of(plan.watch, is_known);
}

bool job_event_changes_nothing(const World& world) {
  const Process& process = world.process;
  if (process.coming_jobs.empty() || process.job == nullptr) return false;
  const WatchedChange& change = process.coming_jobs.front();
  return !change.is_deleted && process.job->version >= change.document->version;
}

namespace {

// Returns whether nobody but the controller can delete pods any more.
bool is_alone(const World& world) {
  return world.faults_left == 0 && world.job != nullptr && world.strays.empty();
}

bool is_newest(const World& world, const Document& pod) {
  const auto stored = world.pods.find(pod.key);
  return stored != world.pods.end() && stored->second->version == pod.version;
}

}  // namespace

// The end of a pod that is not known is no news, but for a read that was served before it. An older
// version of a pod is none while the newest one is known. It would be again after an answer that
// the pod is gone, which is only possible if somebody else deletes it.
bool pod_event_changes_nothing(const World& world) {
  const Process& process = world.process;
  if (process.coming_pods.empty()) return false;
  const WatchedChange& change = process.coming_pods.front();
  const Document& pod = *change.document;
  const auto known = process.pods.find(pod.key);
  const bool is_known = known != process.pods.end() && known->second->uid == pod.uid;
  if (change.is_deleted) return !is_known && !(process.run && reads_pods(*process.run));
  return is_known && known->second->version >= pod.version && is_newest(world, *known->second) &&
         is_alone(world);
}

void deliver_answer(World& world, size_t place) {
  Run& run = *world.process.run;
  run.answers.push_back(std::move(*run.open[place].answer));
  run.open.erase(run.open.begin() + static_cast<std::ptrdiff_t>(place));
  proceed(world);
}

// A sequence that is not above the known one belongs to an old state (agent_watchers.cc).
void hear_agent(World& world, const std::string& uid, const AgentState& state) {
  const auto known = world.process.agents.find(uid);
  if (known == world.process.agents.end()) return;
  plan::AgentView& view = known->second;
  view.last_heard = world.now;
  const bool is_news =
      !view.state || state.sequence > view.state->sequence || state.round > view.state->round;
  if (!is_news) return;
  view.state = std::make_shared<const AgentState>(state);
  view.state_at = world.now;
  world.process.is_queued = true;
}

// A process that knows that its job is gone, and will never hear of another one.
bool is_idle_forever(const World& world) {
  const Process& process = world.process;
  return world.job == nullptr && process.job == nullptr && process.coming_jobs.empty() &&
         !process.run;
}

// Agents that can be reached are polled all the time, so they were heard just now.
void wake(World& world) {
  Process& process = world.process;
  world.now = *process.wakes_at;
  process.wakes_at.reset();
  process.is_queued = true;
  for (auto& [uid, view] : process.agents) {
    const auto agent = world.agents.find(uid);
    if (agent != world.agents.end() && !agent->second.is_silent) view.last_heard = world.now;
  }
}

}  // namespace lockstep::search
