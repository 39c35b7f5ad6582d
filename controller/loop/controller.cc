#include "controller/loop/controller.h"

#include <algorithm>

#include "common/api/reread.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "controller/plan/names.h"

namespace lockstep::loop {
namespace {

// After this many plans, answers, timers and probes have their turn.
constexpr int kPlansInARowMax = 64;

InformerOptions for_jobs(const ControllerOptions& options) {
  InformerOptions informer = options.informer;
  informer.type = kTrainingJobs;
  informer.namespace_ = options.namespace_;
  informer.packs = true;
  return informer;
}

InformerOptions for_pods(const ControllerOptions& options) {
  InformerOptions informer = options.informer;
  informer.type = kPods;
  informer.namespace_ = options.namespace_;
  informer.label_selector = std::string(plan::kManagedByLabel) + "=" + plan::kManagedByValue;
  informer.trim = plan::trimmed_pod;
  informer.packs = true;
  return informer;
}

InformerOptions for_policies(const ControllerOptions& options) {
  InformerOptions informer = options.informer;
  informer.type = kNetworkPolicies;
  informer.namespace_ = options.namespace_;
  informer.label_selector = std::string(plan::kManagedByLabel) + "=" + plan::kManagedByValue;
  return informer;
}

bool writes_status(const plan::Plan& plan) {
  return std::any_of(plan.actions.begin(), plan.actions.end(), [](const plan::Action& action) {
    return std::holds_alternative<plan::WriteStatus>(action);
  });
}

Problems split_lines(const std::string& text) {
  Problems lines;
  size_t from = 0;
  while (from <= text.size()) {
    const size_t to = std::min(text.find('\n', from), text.size());
    if (to > from) lines.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return lines;
}

// Returns which parts of the spec the client left out because they are too deep or too large.
Problems parts_left_out(const Json& document) {
  Problems problems;
  const auto check = [&problems](const std::string& path, const Json& value) {
    if (const std::string why = left_out(value); !why.empty())
      problems.push_back(path + ": found a value " + why + ", which is not supported");
  };
  const Json* spec = find_member(document, "spec");
  if (spec == nullptr) return problems;
  check("spec", *spec);
  if (!spec->is_object()) return problems;
  for (const auto& [key, value] : spec->items()) check(join_path("spec", key), value);
  return problems;
}

// A job whose spec can't be read still has a name and a status.
TrainingJob read_job(const Json& document, Problems& problems) {
  problems = parts_left_out(document);
  if (problems.empty()) {
    Result<TrainingJob> job = stored_training_job_from_json(document);
    if (job.ok()) return std::move(job).value();
    problems = split_lines(job.error().message);
  }
  Json without_spec = document;
  without_spec["spec"] = Json::object();
  if (auto* metadata = without_spec["metadata"].get_ptr<Json::object_t*>())
    std::erase_if(*metadata, [](const auto& member) { return !left_out(member.second).empty(); });
  Result<TrainingJob> rest = stored_training_job_from_json(without_spec);
  TrainingJob readable = rest.ok() ? std::move(rest).value() : TrainingJob{};
  // Neither the job's manager nor its suspension depends on the rest of the spec.
  if (const Json* spec = find_member(document, "spec")) {
    readable.spec.suspend = bool_or(*spec, "suspend", false);
    readable.spec.managedBy = string_or(*spec, "managedBy", "");
  }
  return readable;
}

// Returns the job's namespace and state.
std::pair<std::string, std::string> count_key(const Json& job) {
  const Json* status = find_member(job, "status");
  const std::string state = status == nullptr ? "" : string_or(*status, "state", "");
  return {metadata_text(job, "namespace"), state.empty() ? "Pending" : state};
}

// Uses the owner, not a label, which anybody may change.
std::string job_key_of(const Json& pod) {
  return metadata_text(pod, "namespace") + "/" + plan::controller_name(pod);
}

}  // namespace

Controller::Controller(ApiClient& api, AgentClient& agents, Timers& timers, Random& random,
                       ControllerOptions options, std::function<void()> on_lost)
    : timers_(timers),
      options_(std::move(options)),
      on_lost_(std::move(on_lost)),
      queue_(timers, options_.queue, [this] { schedule(); }),
      guarded_api_(api, timers, [this] { return may_write(); }),
      executor_(guarded_api_, agents, timers, random, *this,
                {.instance = options_.identity, .on_left_server = [this] { schedule(); }}),
      watchers_(agents, timers, random, options_.agents,
                [this](const std::string& job, Urgency urgency) { queue_.add(job, urgency); }),
      budget_(options_.progress),
      share_(options_.share),
      jobs_(
          api, timers, random, for_jobs(options_),
          [this](const std::string& key, const Json* before, const Json* after) {
            on_job(key, before, after);
          },
          [this] { schedule(); }),
      pods_(
          api, timers, random, for_pods(options_),
          [this](const std::string& key, const Json* before, const Json* after) {
            on_pod(key, before, after);
          },
          [this] { schedule(); }) {
  if (options_.limits.network_policies) {
    policies_.emplace(api, timers, random,
                      PolicyCache::Options{
                          .informer = for_policies(options_),
                          .next_try = [this](int writes) { return next_try(writes); },
                          .on_change = [this](const Json& policy) { look_at(job_key_of(policy)); },
                          .on_all_changed =
                              [this] {
                                for (const auto& [key, job] : jobs_.objects()) queue_.add(key);
                                schedule();
                              }});
  }
  if (!options_.lease) return;
  election_.emplace(
      api, timers, random, *options_.lease,
      [this] {
        // The last changes of the previous leader may not have arrived here yet.
        leads_ = true;
        jobs_.relist();
        pods_.relist();
        if (policies_) policies_->relist();
      },
      [this] {
        leads_ = false;
        is_stopped_ = true;
        on_lost_();
      });
}

Controller::~Controller() = default;

void Controller::start() {
  jobs_.start();
  pods_.start();
  if (policies_) policies_->start();
  if (election_) {
    election_->start();
  } else {
    leads_ = true;
  }
}

void Controller::stop(std::function<void()> done) {
  leads_ = false;
  is_stopped_ = true;
  guarded_api_.when_writes_done([this, done = std::move(done)]() mutable {
    if (election_) {
      election_->release(std::move(done));
    } else {
      done();
    }
  });
}

void Controller::visit_jobs(const std::function<void(const TrainingJob&)>& visit) const {
  for (const auto& [uid, memory] : memory_) {
    if (!memory.version.empty()) visit(memory.seen.job);
  }
}

void Controller::on_job(const std::string& key, const Json* before, const Json* after) {
  if (before != nullptr && after == nullptr) {
    const std::string uid = metadata_text(*before, "uid");
    memory_.erase(uid);
    budget_.forget(uid);
    if (policies_) policies_->forget(uid);
  }
  if (after != nullptr) ++job_counts_[count_key(*after)];
  if (before != nullptr) {
    const auto count = job_counts_.find(count_key(*before));
    CHECK(count != job_counts_.end());
    if (--count->second == 0) job_counts_.erase(count);
  }
  queue_.add(key);
}

void Controller::on_pod(const std::string& key, const Json* before, const Json* after) {
  std::optional<plan::PodView> view;
  if (after != nullptr) view = plan::pod_view_from_json(*after);
  if (view && view->owner_uid.empty()) view.reset();
  if (view) view->seen_at = timers_.now();
  if (before != nullptr) {
    const auto owner = pods_by_owner_.find(plan::controller_uid(*before));
    const plan::PodView* known = owner == pods_by_owner_.end() ? nullptr : owner->second.find(key);
    if (view && known != nullptr && known->uid == view->uid) view->seen_at = known->seen_at;
    if (known != nullptr && (!view || view->owner_uid != known->owner_uid)) {
      owner->second.erase(key);
      if (owner->second.empty()) pods_by_owner_.erase(owner);
    }
  }
  if (view) {
    const auto memory = memory_.find(view->owner_uid);
    if (memory != memory_.end()) memory->second.seen.absent_pods.erase(view->name);
    PodsOfJob& pods = pods_by_owner_[view->owner_uid];
    pods.put(key, *std::move(view));
  }
  const Json& pod = after != nullptr ? *after : *before;
  const std::string job = job_key_of(pod);
  if (jobs_.find(job) == nullptr) return;
  const Json* status = find_member(pod, "status");
  const bool is_lost = after == nullptr || !metadata_text(pod, "deletionTimestamp").empty() ||
                       (status != nullptr && string_or(*status, "phase", "") == "Failed");
  queue_.add(job, is_lost ? Urgency::kUrgent : Urgency::kRoutine);
}

void Controller::look_at(const std::string& key) {
  if (jobs_.find(key) != nullptr) queue_.add(key);
}

// Starts work from a timer, not from within the call that made it necessary, which may be in the
// middle of a change.
void Controller::schedule() {
  if (is_scheduled_ || is_stopped_) return;
  is_scheduled_ = true;
  timers_.after(Duration{0}, [this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    is_scheduled_ = false;
    work();
  });
}

bool Controller::may_write() const {
  return leads_ && (!election_ || election_->is_certain());
}

void Controller::work() {
  if (!leads_ || !synced()) return;
  for (int i = 0; i < kPlansInARowMax; ++i) {
    const bool is_full = executor_.plans_at_server() >= options_.plans_at_server_max;
    const auto key = queue_.pop(is_full ? Urgency::kUrgent : Urgency::kRoutine);
    if (!key) return;
    reconcile(*key);
  }
  if (queue_.size() > 0) schedule();
}

// Reading and checking a document is most of a plan's cost, and most plans see an unchanged one.
Controller::Memory& Controller::remember(const CachedObject& object) {
  Memory& memory = memory_[object.uid()];
  if (memory.version != object.version() || memory.version.empty()) {
    const SharedJson document = object.json();
    plan::Observed& seen = memory.seen;
    const TrainingJobStatus before = seen.job.status;
    const bool is_known = !memory.version.empty();
    if (!is_known || !seen.problems.empty() || !reread_stored_job(document, seen.job)) {
      seen.job = read_job(document, seen.problems);
      seen.spec_problems = plan::spec_problems(seen.job);
      JobKeys keys = options_.older_keys;
      keys.insert(keys.begin(), options_.key);
      memory.tokens = job_tokens(keys, seen.job.metadata.uid);
      seen.job_token = memory.tokens.front();
    }
    if (is_known) {
      job_metrics_.observe(before, seen.job.status, metadata_text(document, "creationTimestamp"),
                           timers_.wall_now());
    }
    memory.version = object.version();
  }
  return memory;
}

// Completes memory.seen, except for the views of pods and agents.
void Controller::observe(Memory& memory) {
  plan::Observed& seen = memory.seen;
  const ObjectMeta& metadata = seen.job.metadata;
  // After a change of the job, a pod is tried immediately, and was not checked.
  if (memory.refused_generation != metadata.generation) seen.refusal.reset();
  if (memory.checked_generation != metadata.generation) seen.pod_check.reset();
  if (policies_) seen.network_policy = policies_->view(metadata);
  seen.wall_now = timers_.wall_now();
  seen.progress_writable_at = budget_.next(metadata.uid, watchers_.jobs(), timers_.now());
  seen.may_write_progress = seen.progress_writable_at <= timers_.now();
  seen.suspect_own_network = watchers_.suspect_own_network();
  seen.agent_silence.reset();
  if (watchers_.silence() > options_.agents.silence) seen.agent_silence = watchers_.silence();
}

// Lends the views of the job's pods and agents to a plan, or takes them back: those of a large job
// take longer to copy than to plan with.
void Controller::lend_views(const std::string& key, plan::Observed& seen) {
  const auto pods = pods_by_owner_.find(seen.job.metadata.uid);
  if (pods != pods_by_owner_.end()) pods->second.swap_views(seen.pods);
  watchers_.swap_views(key, seen.agents);
}

plan::Plan Controller::plan_for(const std::string& key, Memory& memory) {
  observe(memory);
  lend_views(key, memory.seen);
  plan::Plan plan = options_.plan(memory.seen, timers_.now(), options_.limits);
  if (knows_answer(plan, memory)) {
    plan = options_.plan(memory.seen, timers_.now(), options_.limits);
  }
  lend_views(key, memory.seen);
  return plan;
}

void Controller::forget(const std::string& key) {
  watchers_.set_targets(key, {}, {});
  share_.drop(key);
  queue_.drop(key);
  queue_.done(key);
}

// Returns whether the plan only wants a pod checked, and a similar one was accepted recently. If
// so, records that as the answer.
bool Controller::knows_answer(const plan::Plan& plan, Memory& memory) {
  if (plan.actions.empty()) return false;
  const plan::CheckPod* check = std::get_if<plan::CheckPod>(&plan.actions.front());
  if (check == nullptr) return false;
  memory.template_digest = check->template_digest;
  if (!accepted_pods_.has(check->template_digest, timers_.now())) return false;
  memory.seen.pod_check.emplace();
  memory.checked_generation = check->generation;
  memory.checks_refused = 0;
  return true;
}

// A plan of a job with thousands of nodes takes as long as thousands of others.
void Controller::rest_after(const std::string& key, Duration cost) {
  const TimePoint now = timers_.now();
  const ThreadShare::Rests rests = share_.charge(key, cost, now);
  if (rests.progress == Duration::zero()) return;
  queue_.rest(key, {.routine = now + rests.routine, .progress = now + rests.progress});
}

void Controller::reconcile(const std::string& key) {
  const Duration begin = worked();
  const CachedObject* object = jobs_.find(key);
  if (object == nullptr) {
    forget(key);
    return;
  }
  Memory& memory = remember(*object);
  plan::Plan plan = plan_for(key, memory);
  const ObjectMeta& metadata = memory.seen.job.metadata;
  log_debug("planned", {{"job", key}, {"why", plan.why}, {"actions", plan.actions.size()}});
  watchers_.set_targets(key, memory.tokens, plan.watch);
  if (policies_) policies_->planned(metadata.uid, plan);
  if (plan.requeue_at) queue_.add_at(key, *plan.requeue_at);
  rest_after(key, worked() - begin);
  if (plan.actions.empty()) {
    ++reconcile_metrics_.successes;
    queue_.forget(key);
    queue_.done(key);
    return;
  }
  const auto latest = std::make_shared<std::string>(plan.why);
  if (writes_status(plan)) memory.plan = latest;
  const bool is_urgent = queue_.is_urgent(key);
  JobContext context{.key = key,
                     .namespace_ = metadata.namespace_,
                     .name = metadata.name,
                     .uid = metadata.uid,
                     .tokens = memory.tokens,
                     .document = *object,
                     .priority = is_urgent ? ApiPriority::kUrgent : ApiPriority::kRoutine,
                     .latest = latest};
  executor_.run(std::move(context), std::move(plan.actions),
                [this, key, uid = metadata.uid, alive = std::weak_ptr(alive_)](Execution result) {
                  if (!alive.expired()) after_plan(key, uid, std::move(result));
                });
}

void Controller::after_plan(const std::string& key, const std::string& uid, Execution execution) {
  const bool is_known = memory_.contains(uid);
  if (is_known && execution.wrote_status) budget_.note_write(uid, timers_.now());
  if (is_known && execution.wrote_progress) budget_.spend(uid, timers_.now());
  ++(execution.ok            ? reconcile_metrics_.successes
     : execution.is_conflict ? reconcile_metrics_.conflicts
                             : reconcile_metrics_.errors);
  if (execution.ok) {
    queue_.forget(key);
    queue_.add_at(key, timers_.now() + options_.recheck);
  } else {
    log_info("a plan stopped at an error", {{"job", key}, {"error", execution.error}});
    queue_.retry(key, execution.retry_after);
  }
  queue_.done(key);
}

void Controller::job_written(const SharedJson& job) {
  jobs_.learn_written(job);
}

void Controller::job_read(const SharedJson& job) {
  jobs_.learn_read(job);
}

void Controller::job_gone(const JobContext& job) {
  jobs_.learn_absent(job.key, job.uid);
}

void Controller::pod_written(const SharedJson& pod) {
  pods_.learn_written(pod);
}

void Controller::pod_read(const SharedJson& pod) {
  pods_.learn_read(pod);
}

void Controller::pod_gone(const JobContext& job, const std::string& name, const std::string& uid) {
  pods_.learn_absent(job.namespace_ + "/" + name, uid);
}

void Controller::pod_absent(const JobContext& job, const std::string& name) {
  Memory* memory = memory_of(job);
  if (memory == nullptr) return;
  memory->seen.absent_pods.insert(name);
  queue_.add(job.key);
}

void Controller::pod_refused(const JobContext& job, const std::string& reason,
                             const std::string& message) {
  Memory* memory = memory_of(job);
  if (memory == nullptr) return;
  memory->refused_generation = memory->seen.job.metadata.generation;
  memory->seen.refusal = {
      .reason = reason, .message = message, .retry_at = next_try(memory->refusals++)};
}

void Controller::pod_checked(const JobContext& job, int64_t generation, const std::string& refusal,
                             bool is_answered) {
  Memory* memory = memory_of(job);
  if (memory == nullptr) return;
  std::optional<plan::PodCheck>& known = memory->seen.pod_check;
  if (memory->checked_generation != generation) {
    known.reset();
    memory->checks_refused = 0;
  }
  memory->checked_generation = generation;
  if (is_answered && refusal.empty()) accepted_pods_.add(memory->template_digest, timers_.now());
  // A refusal holds until the server says otherwise.
  if (is_answered || !known) known = plan::PodCheck{.refusal = refusal};
  if (!known->refusal.empty()) {
    known->retry_at = next_try(memory->checks_refused++);
  }
  queue_.add(job.key);
}

// Only trouble that lasts is shown to users, in status.
void Controller::create_failed(const JobContext& job, const std::string& message) {
  Memory* memory = memory_of(job);
  if (memory == nullptr || ++memory->creates_failed <= kTroublesBorne) return;
  pod_refused(job, "PodCreateFailed", message);
  // Plans again before the next pod is due, so that status says why there is none.
  queue_.add(job.key);
}

bool Controller::status_refused(const JobContext& job) {
  Memory* memory = memory_of(job);
  if (memory == nullptr || memory->version_refused == memory->version) return false;
  memory->version_refused = memory->version;
  return true;
}

void Controller::network_policy_written(const JobContext& job, const SharedJson& policy) {
  policies_->written(job, policy);
  queue_.add(job.key);
}

void Controller::network_policy_gone(const JobContext& job, const std::string& name,
                                     const std::string& uid) {
  policies_->gone(job, name, uid);
  queue_.add(job.key);
}

void Controller::network_policy_outdated(const JobContext& job) {
  policies_->outdated(job);
  queue_.add(job.key);
}

void Controller::network_policy_refused(const JobContext& job, const std::string& reason,
                                        const std::string& message) {
  policies_->refused(job, reason, message);
  queue_.add(job.key);
}

void Controller::network_policy_failed(const JobContext& job, const std::string& message) {
  if (policies_->failed(job, message)) queue_.add(job.key);
}

Controller::Memory* Controller::memory_of(const JobContext& job) {
  const auto found = memory_.find(job.uid);
  return found == memory_.end() ? nullptr : &found->second;
}

TimePoint Controller::next_try(int refusals) const {
  Duration delay = options_.refusal_first;
  for (int i = 0; i < refusals && delay < options_.refusal_max; ++i) delay *= 2;
  return timers_.now() + std::min(delay, options_.refusal_max);
}

void Controller::pod_accepted(const JobContext& job) {
  Memory* memory = memory_of(job);
  if (memory == nullptr) return;
  memory->refusals = memory->creates_failed = 0;
  if (!memory->seen.refusal) return;
  memory->seen.refusal.reset();
  queue_.add(job.key);
}

void Controller::agent_reported(const JobContext& job, const std::string& pod_uid,
                                const AgentState& state) {
  watchers_.learn(job.key, pod_uid, state);
}

}  // namespace lockstep::loop
