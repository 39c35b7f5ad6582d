#include "tests/controller/sim/lives.h"

#include <algorithm>

#include "controller/plan/conditions.h"
#include "controller/plan/names.h"

namespace lockstep::sim {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr char kKey[] = "default/job";
constexpr uint64_t kSeed = 1;
constexpr int64_t kSteps = 20;
constexpr int64_t kManySteps = 150;  // long enough for stale caches between two steps of a life
// Few writes of progress, since each of them multiplies the mishaps.
constexpr double kProgressPerSecond = 0.02;

std::string pod_key(int64_t index, int64_t incarnation = 1) {
  return "default/" + plan::worker_pod_name("job", index, incarnation);
}

// Returns whether a round of that many nodes trains, and has done two steps.
bool trains(const Simulation& simulation, int64_t nodes) {
  const auto& all = simulation.world.nodes.all();
  const auto is_training = [](const auto& entry) {
    const Node& node = *entry.second;
    return node.answers() && node.trains() && node.state.workers.front().step >= 2;
  };
  const TrainingJobStatus status = simulation.status(kKey);
  return is_true(status, kRunning) && std::ranges::count_if(all, is_training) == nodes &&
         status.rendezvous && status.rendezvous->worldSize == nodes;
}

std::function<bool(const Simulation&)> once_trains(int64_t nodes) {
  return [nodes](const Simulation& simulation) { return trains(simulation, nodes); };
}

void edit(Simulation& simulation, const std::function<void(Json&)>& change) {
  simulation.world.store.update(loop::kTrainingJobs, kKey, [&](Json& job) { change(job["spec"]); });
}

LifeStep scale(int64_t from, int64_t to) {
  return {once_trains(from), [to](Simulation& simulation) {
            edit(simulation, [to](Json& spec) { spec["nodes"] = to; });
          }};
}

LifeStep suspend() {
  return {once_trains(2), [](Simulation& simulation) {
            edit(simulation, [](Json& spec) { spec["suspend"] = true; });
          }};
}

LifeStep resume() {
  return {[](const Simulation& simulation) {
            return is_true(simulation.status(kKey), kSuspended) &&
                   simulation.world.nodes.live() == 0;
          },
          [](Simulation& simulation) {
            edit(simulation, [](Json& spec) { spec["suspend"] = false; });
          }};
}

LifeStep lose(Fault fault) {
  return {once_trains(2),
          [fault](Simulation& simulation) { simulation.world.nodes.cause(fault, pod_key(1)); }};
}

LifeStep delete_job() {
  return {once_trains(2),
          [](Simulation& simulation) { simulation.world.store.remove(loop::kTrainingJobs, kKey); }};
}

bool has_ended(const Simulation& simulation, const Life& life) {
  const World& world = simulation.world;
  if (life.is_deleted) {
    return world.store.all(loop::kTrainingJobs).empty() && world.store.all(loop::kPods).empty();
  }
  return simulation.is_over(kKey) && world.nodes.live() == 0;
}

std::string describe(const Mishap& mishap) {
  return "crash after write " + std::to_string(mishap.crash_after) +
         (mishap.is_stale ? ", stale caches" : ", fresh caches") + ", dropped batch " +
         std::to_string(mishap.dropped_batch);
}

std::string difference(const Life& life, const Mishap& mishap, const LifeResult& one,
                       const LifeResult& right) {
  const bool sees_all = !mishap.is_stale && mishap.dropped_batch == 0;
  // A pod that drains may be seen to stop long after its ranks have left.
  const bool may_restart = right.restarts > 0 || life.job.saves;
  const int64_t restarts_max = right.restarts + (may_restart && !sees_all ? 1 : 0);
  if (one.end != right.end) return "ends as " + one.end + ", not " + right.end;
  if (sees_all && one.details != right.details) {
    return "ends with " + one.details + ", not " + right.details;
  }
  const bool is_restarted_as_often = right.restarts <= one.restarts && one.restarts <= restarts_max;
  return is_restarted_as_often ? "" : "has restarts: " + std::to_string(one.restarts);
}

void try_mishap(const Life& life, const Mishap& mishap, const LifeResult& right,
                LivesResult& result) {
  const LifeResult one = live(life, mishap);
  ++result.lives;
  const std::string what =
      one.violation.empty() ? difference(life, mishap, one, right) : one.violation;
  if (!what.empty()) result.failed.push_back(life.name + ", " + describe(mishap) + ": " + what);
}

// Returns how many pods there are in each phase.
std::string phases_of(const Simulation& simulation, bool is_live) {
  std::map<std::string, int> phases;
  for (const auto& [name, pod] : simulation.world.store.all(loop::kPods)) {
    const std::string phase = string_or(member(*pod, "status"), "phase", "Pending");
    if (is_live_pod(*pod) == is_live) ++phases[phase];
  }
  std::string text;
  for (const auto& [phase, pods] : phases) text += " " + phase + "=" + std::to_string(pods);
  return text;
}

}  // namespace

std::vector<Life> all_lives() {
  const JobOptions job{.name = "job", .nodes = 2, .steps = kSteps};
  JobOptions slow = job;
  slow.steps = kManySteps;
  JobOptions saves = job;
  saves.saves = true;
  JobOptions command = job;
  command.is_command = command.by_rank_zero = true;
  JobOptions expires = job;
  expires.ttl = 30;
  return {{.name = "complete", .job = job},
          {.name = "a rank fails", .job = job, .steps = {lose(Fault::kWorkerKilled)}},
          {.name = "a pod is deleted", .job = job, .steps = {lose(Fault::kPodDeleted)}},
          {.name = "a pod is drained", .job = saves, .steps = {lose(Fault::kPodDeleted)}},
          {.name = "scaled up and down", .job = slow, .steps = {scale(2, 3), scale(3, 1)}},
          {.name = "suspended and resumed", .job = slow, .steps = {suspend(), resume()}},
          {.name = "deleted", .job = slow, .steps = {delete_job()}, .is_deleted = true},
          {.name = "a command that rank 0 ends", .job = command},
          {.name = "expires", .job = expires, .is_deleted = true}};
}

std::string looks(const Simulation& simulation, const std::string& key) {
  const TrainingJobStatus status = simulation.status(key);
  std::string text = status.state;
  std::vector<std::string> conditions;
  for (const Condition& condition : status.conditions) {
    // The other conditions tell of obstacles, which depend on what was seen.
    const bool is_final = condition.type == kComplete || condition.type == kFailed ||
                          condition.type == kValid || condition.type == kSuspended;
    if (is_final && condition.status == "True") conditions.push_back(condition.type);
  }
  std::ranges::sort(conditions);
  for (const std::string& condition : conditions) text += " " + condition;
  text += " nodes=" + std::to_string(status.nodes.desired);
  return text + phases_of(simulation, true);
}

LifeResult live(const Life& life, const Mishap& mishap) {
  Simulation simulation(kSeed, {.progress = {.per_second = kProgressPerSecond}});
  Chance& chance = simulation.world.chance;
  chance.plan(Fault::kCrash, mishap.crash_after);
  chance.rate(Fault::kLaggingWatch) = mishap.is_stale ? 1 : 0;
  if (mishap.dropped_batch > 0) {
    chance.plan(Fault::kWatchCut, mishap.dropped_batch);
    chance.rate(Fault::kWatchExpired) = 1;
  }
  simulation.world.users.add_job(life.job);
  LifeResult result;
  bool goes_on = true;
  for (const LifeStep& step : life.steps) {
    goes_on = goes_on && simulation.run(hours(1), [&] { return step.when(simulation); });
    if (goes_on) step.act(simulation);
  }
  goes_on = goes_on && simulation.run(hours(2), [&] { return has_ended(simulation, life); });
  if (goes_on) simulation.run(minutes(3), [] { return false; });
  result.writes = chance.opportunities(Fault::kCrash);
  result.batches = chance.opportunities(Fault::kWatchCut);
  if (!chance.violations.empty()) {
    result.violation = chance.violations.front();
  } else if (!goes_on) {
    result.violation = "convergence: the life did not go on: " + simulation.describe();
  }
  const TrainingJobStatus status = simulation.status(kKey);
  result.end = looks(simulation, kKey);
  result.details = "members " + status.members + phases_of(simulation, false);
  result.restarts = status.restarts;
  return result;
}

LivesResult live_all(const std::vector<Life>& lives, int64_t first, int64_t stride,
                     const std::function<void(const LivesResult&)>& on_progress) {
  LivesResult result;
  int64_t number = 0;
  for (const Life& life : lives) {
    const LifeResult right = live(life, {});
    ++result.lives;
    if (!right.violation.empty()) result.failed.push_back(life.name + ": " + right.violation);
    for (int64_t crash = 0; crash <= right.writes; ++crash) {
      for (const bool is_stale : {false, true}) {
        for (int64_t dropped = 0; dropped <= right.batches; ++dropped) {
          if (number++ % stride != first) continue;
          try_mishap(life, {.crash_after = crash, .is_stale = is_stale, .dropped_batch = dropped},
                     right, result);
          if (on_progress) on_progress(result);
        }
      }
    }
  }
  return result;
}

}  // namespace lockstep::sim
