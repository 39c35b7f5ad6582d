#include "tests/controller/sim/users.h"

#include "controller/plan/names.h"
#include "controller/plan/pod_view.h"
#include "tests/controller/sim/nodes.h"

namespace lockstep::sim {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(500);
constexpr int64_t kPort = 29500;
constexpr int64_t kNodesMax = 5;
constexpr char kNewImage[] = "lockstep:2";  // Nodes::oldest_protocol
constexpr char kFinalizer[] = "lockstep.dev/simulated";

Json fresh_job(const std::string& name, Json spec) {
  return {{"apiVersion", kApiVersion},
          {"kind", kKind},
          {"metadata", {{"name", name}, {"namespace", "default"}}},
          {"spec", std::move(spec)}};
}

TrainSpec tiny_training(int64_t steps) {
  TrainSpec train;
  train.model.layers = train.model.heads = 1;
  train.model.width = train.model.context = 8;
  train.data.path = "/data";
  train.steps = steps;
  train.batch.global = 120;  // divisible by 1 to 6 nodes
  return train;
}

// Training of a click model, which servers hold.
TrainSpec click_training(int64_t steps) {
  TrainSpec train;
  train.model.family = kLogisticRegression;
  train.data.path = "/data";
  train.data.format = "criteo";
  train.steps = steps;
  train.batch.global = 120;
  train.optimizer.clipNorm = 0;
  return train;
}

// Leaves out defaults, as people do; they would be copied with every status.
Json without_defaults(const Json& value, const Json& defaults) {
  Json rest = Json::object();
  for (const auto& [key, member] : value.items()) {
    const Json* fallback = find_member(defaults, key);
    if (fallback == nullptr) {
      rest[key] = member;
    } else if (member != *fallback) {
      rest[key] = member.is_object() ? without_defaults(member, *fallback) : member;
    }
  }
  return rest;
}

void correct(Json& spec) {
  spec["suspend"] = false;
  spec["rendezvous"]["port"] = kPort;
}

// Whether all rules about losses may be given: jobs with servers can only fail.
bool can_have_loss_rules(const Json& spec) {
  if (!member(spec, "parameterServers").is_null()) return false;
  return !member(spec, "train").is_null() && string_or(spec, "image", "") == kNewImage;
}

}  // namespace

bool is_illegal(const Json& spec) {
  return int_or(member(spec, "rendezvous"), "port", kPort) < 0;
}

Users::Users(Chance& chance, FakeStore& store) : chance_(chance), store_(store) {
  chance_.timers.after(kTick, [this] { edit_jobs(); });
}

std::string Users::add_job(const JobOptions& options) {
  TrainingJob job;
  job.spec.nodes = options.nodes;
  job.spec.failure = {.maxRestarts = options.max_restarts,
                      .rules = options.rules,
                      .pendingTimeoutSeconds = options.pending_timeout,
                      .avoidNodes = options.avoid_nodes};
  job.spec.activeDeadlineSeconds = options.active_deadline;
  job.spec.ttlSecondsAfterFinished = options.ttl;
  if (options.is_command) {
    job.spec.command = command_of(options.steps, options.by_rank_zero);
    if (options.by_rank_zero) job.spec.successPolicy = kRankZero;
  } else {
    job.spec.train =
        options.servers > 0 ? click_training(options.steps) : tiny_training(options.steps);
    if (options.servers > 0) {
      job.spec.parameterServers =
          ParameterServersSpec{.nodes = options.servers, .copies = options.copies};
    }
    if (options.saves) job.spec.checkpoint.path = "/checkpoints";
    if (options.elastic_min > 0 || options.keeps_every_step) job.spec.checkpoint.memory.emplace();
  }
  if (options.elastic_min > 0) job.spec.elastic = ElasticSpec{.min = options.elastic_min};
  // Older agents keep no states in memory, and know no rules about losses and no servers.
  const bool needs_new = options.elastic_min > 0 || options.keeps_every_step || options.servers > 0;
  if (needs_new || options.has_new_agents) job.spec.image = kNewImage;
  Json spec = without_defaults(spec_to_json(job.spec), spec_to_json(TrainingJobSpec{}));
  spec["nodes"] = options.nodes;  // so that a scale to the same number changes nothing
  correct(spec);
  store_.create(loop::kTrainingJobs, fresh_job(options.name, std::move(spec)),
                chance_.clock.wall_now());
  ++chance_.counts.jobs;
  return "default/" + options.name;
}

void Users::edit_jobs() {
  if (chance_.is_quiet) return;
  std::vector<std::string> keys;
  for (const auto& [key, job] : store_.all(loop::kTrainingJobs)) keys.push_back(key);
  for (const std::string& key : keys) edit_job(key);
  if (chance_.rate(Fault::kLabelLost) > 0) edit_pods();
  chance_.timers.after(kTick, [this] { edit_jobs(); });
}

void Users::edit_pods() {
  std::vector<std::string> keys;
  for (const auto& [key, pod] : store_.all(loop::kPods)) keys.push_back(key);
  for (const std::string& key : keys) {
    if (chance_.happens(Fault::kLabelLost, key)) spoil_label(key);
  }
}

// Removes the label and soon puts it back.
void Users::spoil_label(const std::string& key) {
  const std::string uid = uid_of(*store_.find(loop::kPods, key));
  store_.update(loop::kPods, key,
                [](Json& pod) { pod["metadata"]["labels"].erase(plan::kManagedByLabel); });
  chance_.timers.after(chance_.delay(std::chrono::seconds(20)), [this, key, uid] {
    const Json* pod = store_.find(loop::kPods, key);
    if (pod == nullptr || uid_of(*pod) != uid) return;
    store_.update(loop::kPods, key, [](Json& same) {
      same["metadata"]["labels"][plan::kManagedByLabel] = plan::kManagedByValue;
    });
  });
}

void Users::edit_job(const std::string& key) {
  const Json& job = *store_.find(loop::kTrainingJobs, key);
  if (is_terminating(job)) return;
  const Json& spec = member(job, "spec");
  const bool is_suspended = bool_or(spec, "suspend", false);
  const bool is_wrong = is_illegal(spec);
  const Json& servers = member(spec, "parameterServers");
  const bool has_servers = !servers.is_null();
  const auto edit = [&](const std::function<void(Json&)>& change) {
    store_.update(loop::kTrainingJobs, key, [&](Json& job) { change(job["spec"]); });
  };
  if (chance_.happens(is_suspended ? Fault::kResume : Fault::kSuspend, key)) {
    edit([&](Json& changed) { changed["suspend"] = !is_suspended; });
  } else if (chance_.happens(has_servers ? Fault::kScaleServers : Fault::kScale, key)) {
    const int64_t least = 1 + int_or(servers, "copies", 0);
    const int64_t nodes = least + static_cast<int64_t>(chance_.random.below(kNodesMax));
    edit([&](Json& changed) {
      (has_servers ? changed["parameterServers"] : changed)["nodes"] = nodes;
    });
  } else if (can_have_loss_rules(spec) && chance_.happens(Fault::kRulesEdited, key)) {
    edit([this](Json& changed) { edit_rules(changed); });
  } else if (chance_.happens(is_wrong ? Fault::kCorrection : Fault::kIllegalEdit, key)) {
    edit([&](Json& changed) { changed["rendezvous"]["port"] = is_wrong ? kPort : -1; });
  } else if (chance_.happens(Fault::kJobReplaced, key)) {
    replace_job(key);
  } else if (chance_.happens(Fault::kJobDeleted, key)) {
    store_.remove(loop::kTrainingJobs, key);
  } else if (chance_.happens(Fault::kJobHeld, key)) {
    hold_job(key);
  }
}

// Writes new rules about losses, such as the job can have.
void Users::edit_rules(Json& spec) {
  const Json& checkpoint = member(spec, "checkpoint");
  const bool keeps = !member(checkpoint, "memory").is_null();
  const bool saves = !string_or(checkpoint, "path", "").empty();
  Json rules = Json::array();
  for (const Json& rule : member(member(spec, "failure"), "rules")) {
    const std::string event = string_or(rule, "event", "");
    if (event != kLossNotFinite && event != kLossSpike) rules.push_back(rule);
  }
  for (const char* event : {kLossNotFinite, kLossSpike}) {
    std::vector<const char*> actions = {kFailAction};
    if (keeps) actions.insert(actions.end(), 3, kSkipBatch);
    if (saves) actions.insert(actions.end(), 3, kRollBack);
    const char* action = actions[chance_.random.below(actions.size())];
    if (chance_.flip(0.8)) rules.push_back({{"event", event}, {"action", action}});
  }
  spec["failure"]["rules"] = std::move(rules);
}

void Users::hold_job(const std::string& key) {
  const std::string uid = uid_of(*store_.find(loop::kTrainingJobs, key));
  store_.update(loop::kTrainingJobs, key,
                [](Json& job) { job["metadata"]["finalizers"] = Json::array({kFinalizer}); });
  store_.mark_deleted(loop::kTrainingJobs, key, chance_.clock.wall_now(), 0);
  let_go(key, uid);
}

// Removes the finalizer once none of the job's pods is live.
void Users::let_go(const std::string& key, const std::string& uid) {
  chance_.timers.after(chance_.delay(std::chrono::seconds(3)), [this, key, uid] {
    const Json* job = store_.find(loop::kTrainingJobs, key);
    if (job == nullptr || uid_of(*job) != uid) return;
    for (const auto& [name, pod] : store_.all(loop::kPods)) {
      if (plan::controller_uid(*pod) == uid && is_live_pod(*pod)) return let_go(key, uid);
    }
    store_.update(loop::kTrainingJobs, key,
                  [](Json& last) { last["metadata"].erase("finalizers"); });
  });
}

// Deletes the job and soon creates it again under the same name.
void Users::replace_job(const std::string& key) {
  Json again = fresh_job(key.substr(key.find('/') + 1),
                         member(*store_.find(loop::kTrainingJobs, key), "spec"));
  store_.remove(loop::kTrainingJobs, key);
  recreating_.insert(key);
  chance_.timers.after(chance_.delay(std::chrono::seconds(10)),
                       [this, key, again = std::move(again)]() mutable {
                         recreating_.erase(recreating_.find(key));
                         if (chance_.is_quiet) correct(again["spec"]);
                         store_.create(loop::kTrainingJobs, again, chance_.clock.wall_now());
                       });
}

void Users::calm_down() {
  std::vector<std::string> keys;
  for (const auto& [key, job] : store_.all(loop::kTrainingJobs)) keys.push_back(key);
  for (const std::string& key : keys) {
    store_.update(loop::kTrainingJobs, key, [](Json& job) { correct(job["spec"]); });
  }
}

}  // namespace lockstep::sim
