#include "tests/controller/sim/simulation.h"

#include <algorithm>

#include "tests/controller/sim/skewed_clock.h"

namespace lockstep::sim {
namespace {

// More turns than this in one run mean a busy loop.
constexpr int64_t kTurnsMax = 600'000;
constexpr int kTurnsUnasked = 16;
constexpr Duration kTick = std::chrono::milliseconds(500);

}  // namespace

struct Simulation::Replica {
  Replica(World& world, const Mutation& mutation, loop::ControllerOptions options)
      : clock(world.chance.clock),
        timers(clock),
        connection(world, options.identity),
        api(mutation.api ? mutation.api(connection) : nullptr),
        agents(mutation.agents ? mutation.agents(connection) : nullptr),
        random(world.chance.random.next_u64()),
        controller(api ? *api : connection, agents ? *agents : connection, timers, random,
                   std::move(options), [this] { is_lost = true; }) {}

  bool is_stalled() const { return timers.now() < connection.stalled_until(); }

  SkewedClock clock;
  loop::Timers timers;
  Connection connection;
  std::unique_ptr<loop::ApiClient> api;
  std::unique_ptr<loop::AgentClient> agents;
  Random random;
  bool is_lost = false;  // another replica leads, or it was stopped
  bool is_terminated = false;
  loop::Controller controller;
};

Simulation::Simulation(uint64_t seed, Mutation mutation, int replicas)
    : world(clock_, seed),
      mutation_(std::move(mutation)),
      replicas_(static_cast<size_t>(replicas)) {
  world.nodes.oldest_protocol = mutation_.oldest_protocol;
  for (size_t place = 0; place < replicas_.size(); ++place) start(place);
  world.chance.timers.after(kTick, [this] { stall(); });
}

Simulation::~Simulation() = default;

void Simulation::start(size_t place) {
  loop::ControllerOptions options;
  options.identity = "controller-" + std::to_string(++starts_);
  // The key is replaced at each start, unless other replicas with the previous one are running.
  options.key = "secret";
  for (int64_t i = 1; i < starts_ && replicas_.size() == 1; ++i) {
    options.older_keys.insert(options.older_keys.begin(), options.key);
    options.key = "secret " + std::to_string(i);
  }
  options.limits = mutation_.limits;
  options.agents = mutation_.watch;
  options.progress = mutation_.progress;
  options.limits.job_image = "lockstep:" + std::to_string(starts_);
  options.plan = [this](const plan::Observed& observed, TimePoint now, const plan::Limits& limits) {
    plan::Plan plan = mutation_.plan(observed, now, limits);
    world.invariants.check_plan(observed, plan);
    return plan;
  };
  if (replicas_.size() > 1) options.lease.emplace().identity = options.identity;
  replicas_[place] = std::make_unique<Replica>(world, mutation_, std::move(options));
  skew(*replicas_[place]);
  replicas_[place]->controller.start();
}

void Simulation::skew_clocks() {
  for (const auto& replica : replicas_) skew(*replica);
}

void Simulation::skew(Replica& replica) {
  Chance& chance = world.chance;
  if (!chance.happens(Fault::kSkewedClock)) return;
  const Duration most = SkewedClock::kAheadMax;
  const auto drifts = static_cast<uint64_t>(2 * SkewedClock::kDriftMax + 1);
  replica.clock.skew(chance.between(-most, most),
                     static_cast<int64_t>(chance.random.below(drifts)) - SkewedClock::kDriftMax);
}

void Simulation::end(size_t place) {
  replicas_[place].reset();
  world.chance.timers.after(world.chance.delay(std::chrono::seconds(20)),
                            [this, place] { start(place); });
}

// Does what SIGTERM does: the controller has three seconds to release its lease.
void Simulation::terminate(Replica& replica) {
  if (std::exchange(replica.is_terminated, true)) return;
  replica.controller.stop([&replica] { replica.is_lost = true; });
  replica.timers.after(std::chrono::seconds(3), [&replica] { replica.is_lost = true; });
}

void Simulation::stall() {
  Chance& chance = world.chance;
  if (chance.is_quiet) return;
  const size_t place = chance.random.below(replicas_.size());
  if (replicas_[place] && chance.happens(Fault::kStall)) {
    replicas_[place]->connection.stall(clock_.now() + chance.delay(std::chrono::minutes(2)));
    world.invariants.stalled();
  }
  if (replicas_[place] && !replicas_[place]->is_stalled() && chance.happens(Fault::kTerminated)) {
    terminate(*replicas_[place]);
  }
  chance.timers.after(kTick, [this] { stall(); });
}

TimePoint Simulation::next_turn(TimePoint end) const {
  TimePoint next = end;
  if (const auto due = world.chance.timers.next()) next = std::min(next, *due);
  for (const auto& replica : replicas_) {
    const auto due = replica ? replica->timers.next() : std::nullopt;
    if (due) next = std::min(next, std::max(*due, replica->connection.stalled_until()));
  }
  return next;
}

bool Simulation::run(Duration time, const std::function<bool()>& done) {
  const TimePoint end_of_run = clock_.now() + time;
  const std::vector<std::string>& violations = world.chance.violations;
  for (int64_t turn = 0; clock_.now() < end_of_run && violations.empty(); ++turn) {
    if (turn == kTurnsMax) world.chance.violate("I10", "the controllers loop without a pause");
    if (turn % kTurnsUnasked == 0 && done()) return true;
    const TimePoint next = next_turn(end_of_run);
    if (next > clock_.now()) clock_.advance(next - clock_.now());
    world.chance.timers.run_due();
    for (size_t place = 0; place < replicas_.size(); ++place) {
      Replica* replica = replicas_[place].get();
      if (replica == nullptr) continue;
      if (!replica->is_stalled()) replica->timers.run_due();
      if (replica->connection.crash_wanted() || replica->is_lost) end(place);
    }
  }
  return violations.empty() && done();
}

bool Simulation::is_over(const std::string& key) const {
  const Json* job = world.store.find(loop::kTrainingJobs, key);
  return job != nullptr && is_finished(member(*job, "status"));
}

TrainingJobStatus Simulation::status(const std::string& key) const {
  const Json* job = world.store.find(loop::kTrainingJobs, key);
  if (job == nullptr) return {};
  Json readable = *job;  // users may have broken the spec
  readable["spec"] = Json::object();
  return stored_training_job_from_json(readable)->status;
}

std::string Simulation::describe() const {
  std::string text;
  for (const std::string& violation : world.chance.violations) text += violation + "\n";
  for (const auto& [key, job] : world.store.all(loop::kTrainingJobs)) {
    text += key + ": " + dump_json(member(*job, "status")) + "\n";
  }
  return text;
}

}  // namespace lockstep::sim
