#include <gtest/gtest.h>

#include <optional>

#include "controller/loop/controller.h"
#include "controller/plan/conditions.h"
#include "tests/controller/sim/world.h"

namespace lockstep::sim {
namespace {

// The world and, at most times, a controller in it.
class Simulation {
 public:
  explicit Simulation(uint64_t seed) : world(clock_, seed) { start(); }

  void start() {
    timers_.emplace(clock_);
    connection_.emplace(world);
    random_.emplace(world.random.next_u64());
    ControllerOptions options;
    options.key = "secret";
    controller_.emplace(*connection_, *connection_, *timers_, *random_, options, [] {});
    controller_->start();
  }

  void crash() {
    controller_.reset();
    connection_.reset();
    timers_.reset();
    world.timers.after(world.delay(std::chrono::seconds(20)), [this] { start(); });
    ++crashes;
  }

  // Until `done` holds or the time is over; whether it holds.
  bool run(Duration time, const std::function<bool()>& done) {
    const TimePoint end = clock_.now() + time;
    while (clock_.now() < end && world.violations.empty()) {
      if (done()) return true;
      TimePoint next = end;
      if (const auto due = world.timers.next()) next = std::min(next, *due);
      if (timers_) {
        if (const auto due = timers_->next()) next = std::min(next, *due);
      }
      if (next > clock_.now()) clock_.advance(next - clock_.now());
      world.timers.run_due();
      if (timers_) timers_->run_due();
      if (world.crash_wanted && timers_) crash();
      world.crash_wanted = false;
    }
    return done();
  }

  TrainingJobStatus status(const std::string& key) {
    const Json* job = world.store.find(kTrainingJobs, key);
    return job == nullptr ? TrainingJobStatus{} : stored_training_job_from_json(*job)->status;
  }

 private:
  ManualClock clock_;

 public:
  World world;
  int crashes = 0;

 private:
  std::optional<Timers> timers_;
  std::optional<Connection> connection_;
  std::optional<Random> random_;
  std::optional<Controller> controller_;
};

std::string describe(Simulation& simulation, const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& violation : simulation.world.violations) text += violation + "\n";
  for (const std::string& key : keys) {
    text += key + ": " + status_to_json(simulation.status(key)).dump() + "\n";
  }
  return text;
}

Faults some_faults(Random& random) {
  const auto up_to = [&random](double most) {
    return random.below(2) == 0 ? 0 : most * static_cast<double>(random.uniform());
  };
  return {.lost_request = up_to(0.1),
          .lost_reply = up_to(0.1),
          .server_error = up_to(0.1),
          .conflict = up_to(0.3),
          .watch_cut = up_to(0.1),
          .watch_expired = up_to(0.5),
          .repeat = up_to(0.5),
          .crash = up_to(0.1),
          .worker_death = up_to(0.02),
          .pod_loss = up_to(0.01),
          .node_loss = up_to(0.003)};
}

TEST(Simulation, AJobWithoutFaultsIsCompleteInItsFirstRound) {
  Simulation simulation(1);
  const std::string key = simulation.world.add_job("quiet", 4, 20, 0);
  ASSERT_TRUE(simulation.run(std::chrono::minutes(5), [&] {
    return is_finished(simulation.status(key));
  })) << describe(simulation, {key});
  const TrainingJobStatus status = simulation.status(key);
  EXPECT_TRUE(is_true(status, kComplete)) << describe(simulation, {key});
  EXPECT_EQ(status.round, 1);
  EXPECT_EQ(status.restarts, 0);
  EXPECT_EQ(status.members, "1,1,1,1");
  EXPECT_EQ(status.progress->step, 20);
  EXPECT_EQ(status.state, "Complete");
  EXPECT_TRUE(
      simulation.run(std::chrono::minutes(1), [&] { return simulation.world.live_pods() == 0; }));
}

TEST(Simulation, EveryJobConvergesOnceFaultsStopAndNoInvariantBreaksBefore) {
  constexpr uint64_t kSeeds = 100;
  int64_t restarts = 0;
  int64_t crashes = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    Random random(seed, 7);
    simulation.world.faults = some_faults(random);
    std::vector<std::string> keys;
    for (uint64_t i = 0; i <= random.below(3); ++i) {
      keys.push_back(simulation.world.add_job(
          "job-" + std::to_string(i), 1 + static_cast<int64_t>(random.below(5)), 60, 10'000));
    }
    const auto all_complete = [&] {
      return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
        return is_true(simulation.status(key), kComplete);
      });
    };
    simulation.run(std::chrono::minutes(4), all_complete);
    simulation.world.is_quiet = true;
    ASSERT_TRUE(simulation.run(std::chrono::hours(2), all_complete)) << describe(simulation, keys);
    // What is over stays as it is.
    simulation.run(std::chrono::minutes(3), [] { return false; });
    const int64_t writes = simulation.world.store.writes();
    simulation.run(std::chrono::minutes(3), [] { return false; });
    EXPECT_EQ(simulation.world.store.writes(), writes);
    EXPECT_EQ(simulation.world.live_pods(), 0u);
    ASSERT_TRUE(simulation.world.violations.empty()) << describe(simulation, keys);
    int64_t of_seed = 0;
    for (const std::string& key : keys) of_seed += simulation.status(key).restarts;
    restarts += of_seed;
    crashes += simulation.crashes;
  }
  // The faults were there.
  EXPECT_GT(restarts, 100);
  EXPECT_GT(crashes, 100);
}

TEST(Simulation, MoreFailuresThanRestartsAllowedFailTheJob) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    simulation.world.faults.worker_death = 0.2;
    const std::string key = simulation.world.add_job("doomed", 2, 100'000, 3);
    ASSERT_TRUE(simulation.run(std::chrono::hours(1), [&] {
      return is_finished(simulation.status(key));
    })) << describe(simulation, {key});
    const TrainingJobStatus status = simulation.status(key);
    ASSERT_TRUE(is_true(status, kFailed)) << describe(simulation, {key});
    EXPECT_EQ(status.restarts, 3);
    EXPECT_EQ(status.lastFailure->exitCode, 137);
    EXPECT_EQ(status.lastFailure->action, "Fail");
    const std::string message = find_condition(status, kFailed)->message;
    EXPECT_NE(message.find("exit code 137"), std::string::npos) << message;
    EXPECT_NE(message.find("killed by the simulation"), std::string::npos) << message;
  }
}

TEST(Simulation, AFailureIsCountedOnceHoweverManyRanksSawIt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    const std::string key = simulation.world.add_job("hit", 4, 60, 10);
    const auto trains = [&] {
      const TrainingJobStatus status = simulation.status(key);
      return is_true(status, kRunning) && status.progress && status.progress->step > 3;
    };
    ASSERT_TRUE(simulation.run(std::chrono::minutes(5), trains));
    simulation.world.faults.worker_death = 1;
    ASSERT_TRUE(simulation.run(std::chrono::minutes(1),
                               [&] { return simulation.world.failures_caused > 0; }));
    simulation.world.is_quiet = true;
    ASSERT_TRUE(simulation.run(std::chrono::minutes(10), [&] {
      return is_finished(simulation.status(key));
    })) << describe(simulation, {key});
    const TrainingJobStatus status = simulation.status(key);
    EXPECT_TRUE(is_true(status, kComplete)) << describe(simulation, {key});
    EXPECT_EQ(status.restarts, 1);
    EXPECT_EQ(status.round, 2);
    EXPECT_EQ(status.members, "1,1,1,1");
    EXPECT_GT(status.lastFailure->recoverySeconds, 0);
    EXPECT_EQ(status.lastFailure->action, "RestartInPlace");
  }
}

}  // namespace
}  // namespace lockstep::sim
