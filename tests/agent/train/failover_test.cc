// Real processes of jobs whose servers have copies: servers die, and training goes on.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/api/server_places.h"
#include "common/base/random.h"
#include "tests/agent/train/long_worlds.h"
#include "tests/agent/train/servers_manager.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

constexpr int64_t kWorkers = 2;
constexpr size_t kServers = 3;

WorkerWorld::Options with_copies(WorkerWorld::Options options) {
  options.nodes = kWorkers;
  options.servers = ParameterServersSpec{.nodes = static_cast<int64_t>(kServers), .copies = 1};
  return options;
}

WorkerWorld::Options click_job(const TemporaryFolder& folder) {
  return with_copies(long_click_world(folder));
}
WorkerWorld::Options mlp_job() {
  return with_copies(long_table_world());
}

// One kill: of this server, once the condition holds and all servers are whole.
struct Kill {
  size_t server = 0;
  std::function<bool(const WorkerWorld&)> when;
  bool with_pod = false;  // it begins anew at another address
};

std::function<bool(const WorkerWorld&)> at_step(int64_t step) {
  return [step](const WorkerWorld& world) { return world.progress(0).step >= step; };
}

std::function<bool(const WorkerWorld&)> in_phase(WorkerPhase phase) {
  return [phase](const WorkerWorld& world) { return world.progress(0).phase == phase; };
}

// Prints how long a step takes that a killed server is in the way of.
class Stopwatch {
 public:
  void start(const WorkerWorld& world) {
    step_ = world.progress(0).step.value_or(0);
    began_ = std::chrono::steady_clock::now();
    runs_ = true;
  }
  // The step in which the server was killed may have needed nothing of it.
  void look(const WorkerWorld& world) {
    if (!runs_ || world.progress(0).step.value_or(0) < step_ + 2) return;
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - began_;
    std::printf("killed at step %lld: %.0f ms to the step after the next\n",
                static_cast<long long>(step_), took.count());
    runs_ = false;
  }

 private:
  int64_t step_ = 0;
  std::chrono::steady_clock::time_point began_;
  bool runs_ = false;
};

// Worker 0 has ended. All others end well, too.
void expect_good_ends(WorkerWorld& world, const ServersManager& manager, int expected = 0) {
  // A server that came too late for the round is the controller's to end.
  for (size_t server = 0; server < kServers; ++server) {
    if (manager.view().servers[server].state == ServerState::kWhole) continue;
    world.kill(manager.rank_of(server), SIGKILL);
  }
  const std::vector<int> codes = world.wait();
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    const int code = codes[static_cast<size_t>(rank)];
    EXPECT_TRUE(code == expected || (rank >= kWorkers && code == 128 + SIGKILL))
        << code << ", rank " << rank << ":\n"
        << world.log(rank);
  }
}

// Runs a round in which servers are killed. All processes end well.
void run_with_kills(WorkerWorld& world, const std::vector<Kill>& kills) {
  ASSERT_NO_FATAL_FAILURE(world.start());
  ServersManager manager(world, {.workers = kWorkers, .servers = kServers});
  Stopwatch stopwatch;
  size_t next = 0;
  while (world.runs(0)) {
    stopwatch.look(world);
    manager.tend();
    if (next < kills.size() && manager.are_all_whole() && kills[next].when(world)) {
      stopwatch.start(world);
      const Kill& kill = kills[next++];
      if (kill.with_pod) {
        manager.lose_pod(kill.server);
      } else {
        manager.kill(kill.server);
      }
    }
    sched_yield();
  }
  EXPECT_EQ(next, kills.size()) << "the round was over before all servers were killed";
  std::printf("last view %s\n", text_of(manager.view()).c_str());
  expect_good_ends(world, manager);
}

// The losses and the checkpoints of a run with kills are those of the undisturbed run.
void expect_the_undisturbed_run(const WorkerWorld::Options& options,
                                const std::vector<Kill>& kills) {
  WorkerWorld calm(options);
  ASSERT_NO_FATAL_FAILURE(calm.run());
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(run_with_kills(world, kills));
  const auto expect_same = [&] {
    EXPECT_EQ(world.metric("loss"), calm.metric("loss"));
    EXPECT_EQ(world.metric("validationLoss"), calm.metric("validationLoss"));
  };
  expect_same();
  EXPECT_EQ(world.storage_notes(0).failed, 0) << world.log(0);
  EXPECT_EQ(world.progress(0).step, options.train.steps);
  // Resumed from the checkpoint before the last one, on other servers.
  std::filesystem::remove_all(world.checkpoint_folders().back());
  world.change_servers({.nodes = 2});
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_GT(world.storage_notes(0).resumed_step, 0);
  expect_same();
}

TEST(Failover, LeavesTheBitsOfAClickModelAsTheyAre) {
  const TemporaryFolder folder;
  expect_the_undisturbed_run(click_job(folder),
                             {{0, at_step(20)}, {0, at_step(0)}, {2, at_step(0)}});
}

TEST(Failover, LeavesTheBitsOfADenseModelAsTheyAre) {
  expect_the_undisturbed_run(mlp_job(), {{1, at_step(20)}, {2, at_step(0)}, {0, at_step(0)}});
}

TEST(Failover, LeavesTheBitsAsTheyAreWhenServersLoseTheirPods) {
  const TemporaryFolder folder;
  expect_the_undisturbed_run(click_job(folder),
                             {{0, at_step(20), true}, {0, at_step(0), true}, {2, at_step(0)}});
  expect_the_undisturbed_run(mlp_job(), {{1, at_step(20), true}, {2, at_step(0), true}});
}

TEST(Failover, IsSurvivedBySavesValidationsAndTheEnd) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder);
  options.train.steps = 240;
  options.train.validation.everySteps = 50;
  options.checkpoint_every = 40;
  expect_the_undisturbed_run(options, {{0, in_phase(WorkerPhase::kSaving)},
                                       {1, in_phase(WorkerPhase::kValidating)},
                                       {2, in_phase(WorkerPhase::kSaving)}});
}

TEST(Failover, EndsWithEveryStepWhateverTheConsistency) {
  const TemporaryFolder folder;
  const ParameterServersSpec kinds[] = {{.consistency = "asynchronous"},
                                        {.consistency = "boundedStaleness", .staleness = 2},
                                        {.consistency = "synchronous", .backupWorkers = 1}};
  for (const ParameterServersSpec& kind : kinds) {
    SCOPED_TRACE(kind.consistency);
    WorkerWorld::Options options = click_job(folder);
    options.servers = kind;
    options.servers->nodes = kServers;
    options.servers->copies = 1;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(run_with_kills(world, {{0, at_step(20)}, {1, at_step(0)}}));
    EXPECT_EQ(world.progress(0).step, options.train.steps);
    EXPECT_EQ(world.progress(1).step, options.train.steps);
  }
}

// The server that decides where to stop dies at about the same time.
TEST(Failover, LetsAllWorkersStopAfterTheSameStep) {
  for (const char* consistency : {"synchronous", "asynchronous"}) {
    SCOPED_TRACE(consistency);
    const TemporaryFolder folder;
    WorkerWorld::Options options = click_job(folder);
    options.servers->consistency = consistency;
    options.train.steps = 100000;
    options.train.validation.everySteps = 0;
    options.checkpoint_every = 0;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.start());
    ServersManager manager(world, {.workers = kWorkers, .servers = kServers});
    for (const int64_t rank : {0, 1}) {
      world.wait_until(rank, [](const ProgressNumbers& numbers) { return numbers.step > 10; });
    }
    world.kill(1, SIGTERM);
    manager.kill(0);
    while (world.runs(0)) {
      manager.tend();
      sched_yield();
    }
    expect_good_ends(world, manager, kExitStopped);
    const int64_t step = *world.progress(0).step;
    EXPECT_EQ(world.progress(1).step, step);
    EXPECT_EQ(world.checkpoint_folders(), std::vector<std::string>{world.checkpoint_folder(step)});
  }
}

// Kills servers at random moments, as long as each range and row stays somewhere. Prints what
// happened. Returns the number of kills.
int64_t run_with_random_kills(WorkerWorld& world, uint64_t seed, int64_t copies, int64_t steps) {
  Random random(seed);
  world.start();
  ServersManager manager(world, {.workers = kWorkers, .servers = kServers});
  int64_t kills = 0;
  int64_t next_at = static_cast<int64_t>(2 + random.below(20));
  while (world.runs(0)) {
    manager.tend();
    sched_yield();
    const ProgressNumbers numbers = world.progress(0);
    const bool trains = numbers.phase >= WorkerPhase::kTraining &&
                        world.progress(1).phase >= WorkerPhase::kTraining;
    if (!trains || numbers.step < next_at) continue;
    const size_t server = random.below(kServers);
    const ServersView after = next_view(manager.view(), server, ServerState::kGone);
    if (manager.view().servers[server].state == ServerState::kGone) continue;
    if (!holds_everything(after, copies)) continue;
    // Some die in the middle of a step, a save or a validation, others between.
    for (uint64_t i = random.below(60); i > 0; --i) sched_yield();
    if (!world.runs(0)) break;
    if (random.below(2) == 0) {
      manager.kill(server);
    } else {
      manager.lose_pod(server);
    }
    ++kills;
    next_at = numbers.step.value_or(0) + static_cast<int64_t>(random.below(25));
    if (numbers.phase == WorkerPhase::kTraining && next_at > steps) next_at = steps;
  }
  std::printf("seed %llu: %lld kills, last view %s\n", static_cast<unsigned long long>(seed),
              static_cast<long long>(kills), text_of(manager.view()).c_str());
  expect_good_ends(world, manager);
  return kills;
}

// LOCKSTEP_FAILOVER_RUNS: how many seeds, from LOCKSTEP_FAILOVER_SEED.
TEST(Failover, IsSurvivedAtRandomMoments) {
  const TemporaryFolder folder;
  const uint64_t first = number_from("LOCKSTEP_FAILOVER_SEED", 1);
  const uint64_t runs = number_from("LOCKSTEP_FAILOVER_RUNS", 4);
  const ParameterServersSpec kinds[] = {{.consistency = "synchronous"},
                                        {.consistency = "asynchronous"},
                                        {.consistency = "boundedStaleness", .staleness = 1},
                                        {.consistency = "synchronous", .backupWorkers = 1}};
  for (uint64_t seed = first; seed < first + runs; ++seed) {
    SCOPED_TRACE(seed);
    const bool is_dense = seed % 8 >= 4;
    WorkerWorld::Options options = is_dense ? mlp_job() : click_job(folder);
    options.train.steps = 200;
    options.train.validation.everySteps = 20;
    options.checkpoint_every = 15;
    options.servers = kinds[seed % 4];
    options.servers->nodes = kServers;
    options.servers->copies = 1 + static_cast<int64_t>(seed / 8 % 2);
    WorkerWorld world(options);
    const int64_t kills =
        run_with_random_kills(world, seed, options.servers->copies, options.train.steps);
    EXPECT_GT(kills, 0);
    EXPECT_EQ(world.progress(0).step, options.train.steps);
    EXPECT_EQ(world.progress(1).step, options.train.steps);
    EXPECT_EQ(world.storage_notes(0).failed, 0) << world.log(0);
    if (seed % 4 == 0) {
      options.servers->copies = 0;
      WorkerWorld calm(options);
      ASSERT_NO_FATAL_FAILURE(calm.run());
      EXPECT_EQ(world.metric("loss"), calm.metric("loss"));
      EXPECT_EQ(world.metric("validationLoss"), calm.metric("validationLoss"));
    }
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace lockstep::train
