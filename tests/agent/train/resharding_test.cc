// Real processes of jobs whose servers become more and fewer while they train.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <set>
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
constexpr size_t kServers = 2;

WorkerWorld::Options with_places(WorkerWorld::Options options) {
  options.nodes = kWorkers;
  options.servers = ParameterServersSpec{.nodes = static_cast<int64_t>(kServers)};
  options.server_places = places_for(kServers);
  return options;
}

WorkerWorld::Options click_job(const TemporaryFolder& folder) {
  return with_places(long_click_world(folder));
}
WorkerWorld::Options mlp_job() {
  return with_places(long_table_world());
}

ServersManager::Shape shape_of(const WorkerWorld::Options& options) {
  return {.workers = kWorkers, .servers = kServers, .places = options.server_places};
}

// Worker 0 has ended. All that were there to the end have ended as expected, and those that left
// well.
void expect_good_ends(WorkerWorld& world, const ServersManager& manager, int expected = 0) {
  std::set<int64_t> left;
  std::set<int64_t> killed;
  for (size_t server = 0; server < manager.view().servers.size(); ++server) {
    const ServerState state = manager.view().servers[server].state;
    if (is_holding(state)) continue;
    const int64_t rank = manager.rank_of(server);
    (state == ServerState::kLeft ? left : killed).insert(rank);
    if (state != ServerState::kLeft) world.kill(rank, SIGKILL);  // the controller's to end
  }
  const std::vector<int> codes = world.wait();
  for (int64_t rank = 0; rank < world.ranks(); ++rank) {
    const int code = codes[static_cast<size_t>(rank)];
    const bool is_killed = killed.contains(rank) && code == 128 + SIGKILL;
    const int wanted = left.contains(rank) ? 0 : expected;
    EXPECT_TRUE(code == wanted || is_killed) << code << ", rank " << rank << ":\n"
                                             << world.log(rank);
  }
}

constexpr int64_t kForever = 100'000;   // steps of a round that the test stops
constexpr int64_t kStepsOfRound = 130;  // that it has at least: with a checkpoint and a validation

// The round gets as many servers as the list says, one number after the other. Then it is stopped.
void run_with_changes(WorkerWorld& world, const WorkerWorld::Options& options,
                      const std::vector<size_t>& numbers) {
  ASSERT_NO_FATAL_FAILURE(world.start());
  ServersManager manager(world, shape_of(options));
  size_t reached = 0;
  int64_t next_at = 10;
  bool is_stopped = false;
  while (world.runs(0)) {
    sched_yield();
    manager.tend();
    const int64_t step = world.progress(0).step.value_or(0);
    if (is_stopped || step < next_at || !manager.are_all_whole()) continue;
    const size_t now = counted_servers(manager.view());
    if (reached == numbers.size()) {
      is_stopped = true;
      world.kill(1, SIGTERM);
    } else if (now == numbers[reached]) {
      const bool is_last = ++reached == numbers.size();
      next_at = is_last ? std::max(step + 10, kStepsOfRound) : step + 10;
    } else if (now < numbers[reached]) {
      manager.add_server();
    } else {
      manager.remove_server();
    }
  }
  EXPECT_TRUE(is_stopped) << "the round ended by itself:\n" << world.log(0);
  std::printf("last view %s\n", text_of(manager.view()).c_str());
  expect_good_ends(world, manager, kExitStopped);
  EXPECT_EQ(world.progress(0).step, world.progress(1).step);
}

// Runs the round for at least this number of steps.
void run_for(WorkerWorld& world, int64_t steps) {
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(0, [&](const ProgressNumbers& now) { return now.step >= steps; });
  world.kill(1, SIGTERM);
  for (const int code : world.wait()) EXPECT_EQ(code, kExitStopped) << world.log(0);
}

// Compares as many values as both have.
void expect_same_metrics(const WorkerWorld& world, const WorkerWorld& calm, size_t steps) {
  for (const char* const name : {"loss", "validationLoss"}) {
    std::vector<double> values = world.metric(name);
    std::vector<double> expected = calm.metric(name);
    const size_t count = std::min(values.size(), expected.size());
    EXPECT_GE(count, std::string(name) == "loss" ? steps : 1) << name;
    values.resize(count);
    expected.resize(count);
    EXPECT_EQ(values, expected) << name;
  }
}

// The losses are those of a round that keeps its servers, also after the last checkpoint is lost.
void expect_the_losses_of_a_calm_run(WorkerWorld::Options options,
                                     const std::vector<size_t>& numbers) {
  options.train.steps = kForever;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(run_with_changes(world, options, numbers));
  const int64_t steps = *world.progress(0).step;
  WorkerWorld calm(options);
  ASSERT_NO_FATAL_FAILURE(run_for(calm, steps));
  expect_same_metrics(world, calm, static_cast<size_t>(steps));
  EXPECT_EQ(world.storage_notes(0).failed, 0) << world.log(0);
  std::filesystem::remove_all(world.checkpoint_folders().back());
  ASSERT_NO_FATAL_FAILURE(run_for(world, steps));
  EXPECT_GT(world.storage_notes(0).resumed_step, 0);
  expect_same_metrics(world, calm, static_cast<size_t>(steps));
}

TEST(Resharding, LeavesTheBitsOfAClickModelAsTheyAre) {
  const TemporaryFolder folder;
  expect_the_losses_of_a_calm_run(click_job(folder), {3, 4, 1, 2});
}

TEST(Resharding, LeavesTheBitsOfADenseModelAsTheyAre) {
  expect_the_losses_of_a_calm_run(mlp_job(), {3, 1, 2});
}

TEST(Resharding, StopsAfterTheSameStepWhateverTheConsistency) {
  const TemporaryFolder folder;
  const ParameterServersSpec kinds[] = {{.consistency = "asynchronous"},
                                        {.consistency = "boundedStaleness", .staleness = 2},
                                        {.consistency = "synchronous", .backupWorkers = 1}};
  for (const ParameterServersSpec& kind : kinds) {
    SCOPED_TRACE(kind.consistency);
    WorkerWorld::Options options = click_job(folder);
    options.train.steps = kForever;
    options.servers = kind;
    options.servers->nodes = kServers;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(run_with_changes(world, options, {4, 2, 3}));
  }
}

// Servers come, go, are killed and lose their pods, as long as each place stays somewhere. Returns
// how often.
int64_t run_with_random_events(WorkerWorld& world, const WorkerWorld::Options& options,
                               uint64_t seed) {
  Random random(seed);
  world.start();
  ServersManager manager(world, shape_of(options));
  const int64_t copies = options.servers->copies;
  int64_t events = 0;
  int64_t next_at = static_cast<int64_t>(2 + random.below(20));
  while (world.runs(0)) {
    manager.tend();
    sched_yield();
    const ProgressNumbers numbers = world.progress(0);
    const bool trains = numbers.phase >= WorkerPhase::kTraining &&
                        world.progress(1).phase >= WorkerPhase::kTraining;
    if (!trains || numbers.step < next_at) continue;
    const ServersView& view = manager.view();
    const size_t counted = counted_servers(view);
    const bool changes = (counted < view.servers.size() && view.servers[counted].is_new) ||
                         view.servers[counted - 1].state == ServerState::kLeaving;
    const size_t server = random.below(view.servers.size());
    for (uint64_t i = random.below(60); i > 0; --i) sched_yield();
    if (!world.runs(0)) break;
    const uint64_t kind = random.below(4);
    if (kind == 0 && !changes && counted < 5) {
      manager.add_server();
    } else if (kind == 1 && !changes && counted > static_cast<size_t>(copies) + 1) {
      if (view.servers[counted - 1].state != ServerState::kWhole) continue;
      manager.remove_server();
    } else {
      if (is_absent(view.servers[server].state)) continue;
      if (!holds_everything(next_view(view, server, ServerState::kGone), copies)) continue;
      kind == 2 ? manager.kill(server) : manager.lose_pod(server);
    }
    ++events;
    next_at = numbers.step.value_or(0) + static_cast<int64_t>(random.below(20));
    if (next_at > options.train.steps) next_at = options.train.steps;
  }
  std::printf("seed %llu: %lld events, last view %s\n", static_cast<unsigned long long>(seed),
              static_cast<long long>(events), text_of(manager.view()).c_str());
  expect_good_ends(world, manager);
  return events;
}

// LOCKSTEP_RESHARDINGS: how many seeds, from LOCKSTEP_RESHARDING_SEED.
TEST(Resharding, IsSurvivedAtRandomMoments) {
  const TemporaryFolder folder;
  const uint64_t first = number_from("LOCKSTEP_RESHARDING_SEED", 1);
  const uint64_t runs = number_from("LOCKSTEP_RESHARDINGS", 4);
  const ParameterServersSpec kinds[] = {{.consistency = "synchronous"},
                                        {.consistency = "asynchronous"},
                                        {.consistency = "boundedStaleness", .staleness = 1},
                                        {.consistency = "synchronous", .backupWorkers = 1}};
  for (uint64_t seed = first; seed < first + runs; ++seed) {
    SCOPED_TRACE(seed);
    WorkerWorld::Options options = seed % 8 >= 4 ? mlp_job() : click_job(folder);
    options.train.steps = 200;
    options.train.validation.everySteps = 20;
    options.checkpoint_every = 15;
    options.servers = kinds[seed % 4];
    options.servers->nodes = kServers;
    options.servers->copies = static_cast<int64_t>(seed / 4 % 2);
    WorkerWorld world(options);
    EXPECT_GT(run_with_random_events(world, options, seed), 0);
    EXPECT_EQ(world.progress(0).step, options.train.steps);
    EXPECT_EQ(world.progress(1).step, options.train.steps);
    EXPECT_EQ(world.storage_notes(0).failed, 0) << world.log(0);
    if (seed % 4 != 0) continue;
    WorkerWorld calm(options);
    ASSERT_NO_FATAL_FAILURE(calm.run());
    EXPECT_EQ(world.metric("loss"), calm.metric("loss"));
    EXPECT_EQ(world.metric("validationLoss"), calm.metric("validationLoss"));
  }
}

}  // namespace
}  // namespace lockstep::train
