#include "tests/controller/sim/user_sequences.h"

#include <functional>
#include <iterator>
#include <optional>

#include "controller/plan/conditions.h"
#include "tests/controller/sim/lives.h"
#include "tests/controller/sim/simulation.h"

namespace lockstep::sim {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr char kKey[] = "default/job";
constexpr int64_t kStepsForever = 1'000'000;
constexpr int64_t kNodesMax = 4;
constexpr int64_t kOperationsMin = 3;
constexpr uint64_t kOperationsSpan = 8;
constexpr Duration kPauseMax = seconds(30);
constexpr int64_t kRestartsMin = 100;  // more than the failures of a sequence
constexpr int64_t kPort = 29500;

bool never() {
  return false;
}

JobOptions first_job(Random& random) {
  return {.name = "job",
          .nodes = 1 + static_cast<int64_t>(random.below(3)),
          .steps = kStepsForever,
          .max_restarts = kRestartsMin,
          .saves = random.below(2) == 0};
}

// Returns whether nothing is left to do for the object that is stored now.
bool has_settled(const Simulation& simulation) {
  const World& world = simulation.world;
  const Json* job = world.store.find(loop::kTrainingJobs, kKey);
  const auto pods = static_cast<int64_t>(world.store.all(loop::kPods).size());
  if (job == nullptr) return pods == 0;
  const TrainingJobStatus status = simulation.status(kKey);
  const int64_t generation = int_or(member(*job, "metadata"), "generation", 0);
  if (status.observedGeneration != generation) return false;
  const Json& spec = member(*job, "spec");
  if (bool_or(spec, "suspend", false)) return is_true(status, kSuspended) && pods == 0;
  const int64_t nodes = int_or(spec, "nodes", 1);
  const bool is_whole = status.rendezvous && status.rendezvous->worldSize == nodes;
  return status.state == "Running" && is_whole && pods == nodes &&
         world.nodes.live() == static_cast<size_t>(nodes);
}

// Waits until it has settled, and some time more.
std::string settle(Simulation& simulation) {
  const bool settled = simulation.run(hours(2), [&] { return has_settled(simulation); });
  if (settled) simulation.run(minutes(2), never);
  const auto& violations = simulation.world.chance.violations;
  if (!violations.empty()) return violations.front();
  if (settled && has_settled(simulation)) return "";
  return "convergence: the job has not settled: " + simulation.describe();
}

class Sequence {
 public:
  Sequence(Simulation& simulation, Random& random) : simulation_(simulation), random_(random) {}

  void run(std::vector<std::string>& operations) {
    simulation_.world.users.add_job(first_job(random_));
    spec_ = member(*stored(), "spec");
    const uint64_t count = kOperationsMin + random_.below(kOperationsSpan);
    for (uint64_t i = 0; i < count; ++i) {
      const auto pause = milliseconds(random_.below(to_milliseconds(kPauseMax)));
      simulation_.run(pause, never);
      operations.push_back(do_something());
    }
    edit([](Json& spec) { spec["rendezvous"]["port"] = kPort; });
  }

 private:
  static uint64_t to_milliseconds(Duration time) {
    return static_cast<uint64_t>(time / milliseconds(1));
  }

  const Json* stored() { return simulation_.world.store.find(loop::kTrainingJobs, kKey); }
  void edit(const std::function<void(Json&)>& change) {
    simulation_.world.store.update(loop::kTrainingJobs, kKey,
                                   [&](Json& job) { change(job["spec"]); });
  }

  std::string do_something() {
    if (stored() == nullptr) return create_again();
    switch (random_.below(9)) {
      case 0:
      case 1:
        return scale();
      case 2:
      case 3:
        return suspend_or_resume();
      case 4:
        return edit_a_field();
      case 5:
        return lose(Fault::kPodDeleted, "delete pod ");
      case 6:
        return lose(random_.below(2) == 0 ? Fault::kPodForceDeleted : Fault::kWorkerKilled,
                    "lose ");
      case 7:
        return spoil_or_correct();
      default:
        return delete_job();
    }
  }

  std::string scale() {
    const int64_t nodes = 1 + static_cast<int64_t>(random_.below(kNodesMax));
    edit([&](Json& spec) { spec["nodes"] = nodes; });
    return "scale to " + std::to_string(nodes);
  }
  std::string suspend_or_resume() {
    const bool suspends = !bool_or(member(*stored(), "spec"), "suspend", false);
    edit([&](Json& spec) { spec["suspend"] = suspends; });
    return suspends ? "suspend" : "resume";
  }
  std::string edit_a_field() {
    const int64_t restarts = kRestartsMin + static_cast<int64_t>(random_.below(100));
    edit([&](Json& spec) { spec["failure"]["maxRestarts"] = restarts; });
    return "edit maxRestarts";
  }
  std::string spoil_or_correct() {
    const bool is_wrong = is_illegal(member(*stored(), "spec"));
    edit([&](Json& spec) { spec["rendezvous"]["port"] = is_wrong ? kPort : -1; });
    return is_wrong ? "correct the port" : "write an invalid port";
  }
  std::string delete_job() {
    spec_ = member(*stored(), "spec");
    simulation_.world.store.remove(loop::kTrainingJobs, kKey);
    const bool again = random_.below(2) == 0;
    return again ? "delete the job, " + create_again() : "delete the job";
  }
  std::string create_again() {
    World& world = simulation_.world;
    world.store.create(loop::kTrainingJobs,
                       {{"apiVersion", kApiVersion},
                        {"kind", kKind},
                        {"metadata", {{"name", "job"}, {"namespace", "default"}}},
                        {"spec", spec_}},
                       world.chance.clock.wall_now());
    return "create it again";
  }
  // Hits a pod that runs, if there is any.
  std::string lose(Fault fault, const std::string& what) {
    Nodes& nodes = simulation_.world.nodes;
    std::vector<std::string> keys;
    for (const auto& [uid, node] : nodes.all()) {
      const bool has_worker = node->answers() && node->state.phase == "Running";
      if (fault == Fault::kWorkerKilled ? has_worker : node->is_live) keys.push_back(node->key);
    }
    if (keys.empty()) return "nothing";
    const std::string key = keys[random_.below(keys.size())];
    nodes.cause(fault, key);
    return what + key;
  }

  Simulation& simulation_;
  Random& random_;
  Json spec_{};
};

std::optional<Json> last_spec(const Simulation& simulation) {
  const Json* job = simulation.world.store.find(loop::kTrainingJobs, kKey);
  return job == nullptr ? std::nullopt : std::optional(member(*job, "spec"));
}

std::string end_in_fresh_cluster(uint64_t seed, const std::optional<Json>& spec,
                                 std::string& violation) {
  Simulation fresh(seed);
  if (spec) {
    fresh.world.store.create(loop::kTrainingJobs,
                             {{"apiVersion", kApiVersion},
                              {"kind", kKind},
                              {"metadata", {{"name", "job"}, {"namespace", "default"}}},
                              {"spec", *spec}},
                             fresh.world.chance.clock.wall_now());
  }
  violation = settle(fresh);
  return looks(fresh, kKey);
}

void set_rates(Chance& chance, Random& random) {
  constexpr Fault kKinds[] = {
      Fault::kLaggingWatch,    Fault::kLostReply, Fault::kLostRequest,  Fault::kConflict,
      Fault::kCoalescedEvents, Fault::kWatchCut,  Fault::kWatchExpired, Fault::kCrash};
  constexpr double kMost = 0.1;
  for (const Fault fault : kKinds) {
    const bool is_on = random.below(2) == 0;
    chance.rate(fault) = is_on ? kMost * static_cast<double>(random.uniform()) : 0;
  }
}

}  // namespace

SequenceResult run_sequence(uint64_t seed) {
  constexpr uint64_t kStream = 11;
  Random random(seed, kStream);
  Simulation simulation(seed);
  set_rates(simulation.world.chance, random);
  SequenceResult result{.seed = seed};
  Sequence(simulation, random).run(result.operations);
  simulation.world.chance.is_quiet = true;
  result.violation = settle(simulation);
  result.end = looks(simulation, kKey);
  if (!result.violation.empty()) return result;
  const std::string fresh = end_in_fresh_cluster(seed, last_spec(simulation), result.violation);
  if (result.violation.empty() && fresh != result.end) {
    result.violation = "it ends as " + result.end + ", a fresh job as " + fresh;
  }
  return result;
}

}  // namespace lockstep::sim
