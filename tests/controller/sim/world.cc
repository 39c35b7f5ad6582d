#include "tests/controller/sim/world.h"

#include "controller/loop/agent_watchers.h"
#include "controller/loop/informer.h"
#include "controller/plan/pod_view.h"

namespace lockstep::sim {
namespace {

using std::chrono::seconds;

constexpr Duration kTick = std::chrono::milliseconds(500);
constexpr int64_t kGraceSeconds = 30;
constexpr double kRefusedInAStorm = 0.7;
constexpr Duration kShortPartition = seconds(30);

}  // namespace

bool is_write(loop::ApiVerb verb) {
  return verb != loop::ApiVerb::kGet && verb != loop::ApiVerb::kList;
}

World::World(ManualClock& clock, uint64_t seed)
    : chance(clock, seed),
      nodes(chance, store),
      invariants(chance, store, nodes),
      users(chance, store) {
  store.on_write = [this](const loop::ApiRequest& request, const Json* stored,
                          std::string_view sender) {
    invariants.check_write(request, stored, sender);
  };
  store.on_change = [this](loop::ResourceType type, const FakeStore::Event& event) {
    changed(type, event);
  };
  nodes.on_assignment = [this](const Assignment& assignment) {
    invariants.assignment_received(assignment);
  };
  nodes.on_trained = [this](const std::string& uid, const Assignment& assignment) {
    invariants.trained(uid, assignment);
  };
  nodes.on_ended = [this](const Node& node) { invariants.ended(node); };
  nodes.on_failure = [this](const std::string& uid) { invariants.failed(uid); };
  chance.timers.after(kTick, [this] { shake(); });
}

// Causes faults of the server, of the network to agents and of the wall clock.
void World::shake() {
  if (chance.is_quiet) return;
  const TimePoint now = chance.clock.now();
  if (chance.happens(Fault::kServerAway)) away_until_ = now + chance.delay(std::chrono::minutes(3));
  if (chance.happens(Fault::kStorm)) stormy_until_ = now + chance.delay(seconds(30));
  if (now >= partition_until_) start_partition();
  if (chance.happens(Fault::kClockJump)) {
    chance.clock.jump(seconds(static_cast<int64_t>(chance.random.below(7200)) - 3600));
  }
  chance.timers.after(kTick, [this] { shake(); });
}

void World::start_partition() {
  const bool is_staggered = chance.happens(Fault::kStaggeredPartition);
  if (!is_staggered && !chance.happens(Fault::kPartition)) return;
  partition_spread_ = is_staggered ? loop::AgentWatchOptions{}.poll_wait(1) : Duration{0};
  partitioned_at_.clear();
  partition_from_ = chance.clock.now();
  const bool is_short = chance.flip(0.5);
  partition_until_ = partition_from_ + partition_spread_ +
                     (is_short ? chance.between(seconds(1), kShortPartition)
                               : chance.between(kShortPartition, std::chrono::minutes(3)));
}

bool World::is_partitioned(const loop::AgentAddress& agent) {
  const TimePoint now = chance.clock.now();
  if (now >= partition_until_) return false;
  if (partition_spread_ == Duration{0}) return true;
  const auto [turn, is_new] = partitioned_at_.try_emplace(agent.ip);
  if (is_new) turn->second = partition_from_ + chance.delay(partition_spread_);
  return now >= turn->second;
}

std::optional<loop::ApiReply> World::refuse(const loop::ApiRequest& request) {
  if (is_server_away()) {
    return loop::ApiReply{.outcome = loop::ApiOutcome::kUnavailable, .message = "no connection"};
  }
  const bool is_stormy = chance.clock.now() < stormy_until_ && chance.flip(kRefusedInAStorm);
  if (chance.happens(Fault::kServerError) || (is_stormy && chance.flip(0.5))) {
    return loop::ApiReply{.outcome = loop::ApiOutcome::kUnavailable, .message = "HTTP 500"};
  }
  if (chance.happens(Fault::kThrottled) || is_stormy) {
    return loop::ApiReply{.outcome = loop::ApiOutcome::kThrottled,
                          .message = "HTTP 429",
                          .retry_after = seconds(1 + static_cast<int64_t>(chance.random.below(5)))};
  }
  const bool is_new_pod =
      request.verb == loop::ApiVerb::kCreate && request.type.plural == loop::kPods.plural;
  return is_new_pod ? refuse_pod(request) : std::nullopt;
}

std::optional<loop::ApiReply> World::refuse_pod(const loop::ApiRequest& request) {
  if (chance.happens(Fault::kQuota)) {
    return loop::ApiReply{.outcome = loop::ApiOutcome::kForbidden, .message = "exceeded quota"};
  }
  if (!is_dry_run(request)) return std::nullopt;
  if (chance.happens(Fault::kWebhook)) {
    return loop::ApiReply{.outcome = loop::ApiOutcome::kInvalid,
                          .message = "HTTP 400: admission webhook \"w\" does not support dry run"};
  }
  const bool is_refused = chance.happens(Fault::kPodRefused);
  invariants.checked(plan::controller_uid(request.body), is_refused);
  if (!is_refused) return std::nullopt;
  return loop::ApiReply{.outcome = loop::ApiOutcome::kForbidden,
                        .message = "HTTP 403: error looking up service account default/team"};
}

// Another client writes the same object just before this request.
void World::write_before(const loop::ApiRequest& request) {
  store.update(request.type, request.namespace_ + "/" + request.name, [](Json& object) {
    Json& note = object["metadata"]["annotations"]["rival"];
    note = std::to_string(note.is_string() ? std::stoi(note.get<std::string>()) + 1 : 1);
  });
}

loop::ApiReply World::serve(loop::ApiRequest request, std::string_view sender) {
  if (is_write(request.verb) && request.type.plural != loop::kLeases.plural) ++attempts_;
  if (std::optional<loop::ApiReply> refusal = refuse(request)) return *std::move(refusal);
  if (request.verb == loop::ApiVerb::kReplaceStatus && chance.happens(Fault::kConflict)) {
    write_before(request);
  }
  return store.serve(std::move(request), chance.clock.wall_now(), sender);
}

void World::subscribe(loop::ResourceType type, std::weak_ptr<bool> alive,
                      std::function<void()> changed) {
  std::erase_if(subscribers_, [](const Subscriber& other) { return other.alive.expired(); });
  subscribers_.push_back({type, std::move(alive), std::move(changed)});
}

void World::changed(loop::ResourceType type, const FakeStore::Event& event) {
  if (type.plural == loop::kTrainingJobs.plural) {
    invariants.job_changed(event);
    if (event.type == loop::WatchEventType::kDeleted) collect_garbage(uid_of(*event.object));
  } else if (type.plural == loop::kPods.plural) {
    nodes.on_pod(event);
    const std::string owner = plan::controller_uid(*event.object);
    // Created for a job that was deleted in the meantime.
    if (event.type == loop::WatchEventType::kAdded && !has_job(owner)) collect_garbage(owner);
  }
  for (const Subscriber& subscriber : subscribers_) {
    if (subscriber.type.plural == type.plural && !subscriber.alive.expired()) subscriber.changed();
  }
}

bool World::has_job(const std::string& uid) const {
  for (const auto& [key, job] : store.all(loop::kTrainingJobs)) {
    if (uid_of(*job) == uid) return true;
  }
  return false;
}

void World::collect_garbage(const std::string& job_uid) {
  chance.timers.after(chance.delay(seconds(3)), [this, job_uid] {
    for (const loop::ResourceType type : {loop::kPods, loop::kSecrets, loop::kNetworkPolicies}) {
      std::vector<std::string> keys;
      for (const auto& [key, object] : store.all(type)) {
        if (plan::controller_uid(*object) == job_uid) keys.push_back(key);
      }
      for (const std::string& key : keys) {
        store.mark_deleted(type, key, chance.clock.wall_now(), kGraceSeconds);
      }
    }
  });
}

void World::calm_down() {
  chance.is_quiet = true;
  away_until_ = stormy_until_ = partition_until_ = {};
  users.calm_down();
}

Json World::status_of(const std::string& job_key) const {
  const Json* job = store.find(loop::kTrainingJobs, job_key);
  return job == nullptr ? Json::object() : member(*job, "status");
}

}  // namespace lockstep::sim
