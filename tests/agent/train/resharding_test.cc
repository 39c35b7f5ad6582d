// Real processes of jobs whose servers become more and fewer while they train.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/api/server_places.h"
#include "common/base/random.h"
#include "tests/agent/train/click_world.h"
#include "tests/agent/train/servers_manager.h"
#include "tests/agent/train/table_world.h"
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
  WorkerWorld::Options options = click_world(folder, kFactorizationMachine);
  options.train.steps = 240;
  options.train.validation.everySteps = 120;
  options.train.batch.global = 64;
  options.checkpoint_every = 60;
  return with_places(options);
}

WorkerWorld::Options mlp_job() {
  WorkerWorld::Options options = table_world(1);
  options.train.steps = 200;
  options.train.validation.everySteps = 50;
  options.train.optimizer.clipNorm = 0;
  options.checkpoint_every = 40;
  return with_places(options);
}

ServersManager::Shape shape_of(const WorkerWorld::Options& options) {
  return {.workers = kWorkers, .servers = kServers, .places = options.server_places};
}

// Worker 0 has ended. All that were there to the end have ended well, and so have those that left.
void expect_good_ends(WorkerWorld& world, const ServersManager& manager) {
  for (size_t server = 0; server < manager.view().servers.size(); ++server) {
    if (is_holding(manager.view().servers[server].state)) continue;
    if (manager.view().servers[server].state == ServerState::kLeft) continue;
    world.kill(manager.rank_of(server), SIGKILL);  // the controller's to end
  }
  const std::vector<int> codes = world.wait();
  for (int64_t rank = 0; rank < world.ranks(); ++rank) {
    const int code = codes[static_cast<size_t>(rank)];
    EXPECT_TRUE(code == 0 || (rank >= kWorkers && code == 128 + SIGKILL))
        << code << ", rank " << rank << ":\n"
        << world.log(rank);
  }
}

// From step 10 on, the round gets as many servers as the list says, one number after the other.
void run_with_changes(WorkerWorld& world, const WorkerWorld::Options& options,
                      const std::vector<size_t>& numbers) {
  ASSERT_NO_FATAL_FAILURE(world.start());
  ServersManager manager(world, shape_of(options));
  size_t reached = 0;
  int64_t next_at = 10;
  bool is_stopped = false;  // so that the round is not over too early
  while (world.runs(0)) {
    sched_yield();
    manager.tend();
    const bool are_all_done = reached == numbers.size();
    const bool must_stop = !are_all_done && world.progress(1).step > options.train.steps - 60;
    if (must_stop != is_stopped && (must_stop || are_all_done)) {
      is_stopped = must_stop;
      world.kill(1, is_stopped ? SIGSTOP : SIGCONT);
    }
    if (are_all_done || !manager.are_all_whole()) continue;
    if (!is_stopped && world.progress(0).step < next_at) continue;
    const size_t now = counted_servers(manager.view());
    if (now == numbers[reached]) {
      ++reached;
      next_at = world.progress(0).step.value_or(0) + 10;
    } else if (now < numbers[reached]) {
      manager.add_server();
    } else {
      manager.remove_server();
    }
  }
  EXPECT_EQ(reached, numbers.size()) << "the round was over too early";
  std::printf("last view %s\n", text_of(manager.view()).c_str());
  expect_good_ends(world, manager);
}

// The losses are those of a round that keeps its servers, also after the last checkpoint is lost.
void expect_the_losses_of_a_calm_run(const WorkerWorld::Options& options,
                                     const std::vector<size_t>& numbers) {
  WorkerWorld calm(options);
  ASSERT_NO_FATAL_FAILURE(calm.run());
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(run_with_changes(world, options, numbers));
  const auto expect_same = [&] {
    EXPECT_EQ(world.metric("loss"), calm.metric("loss"));
    EXPECT_EQ(world.metric("validationLoss"), calm.metric("validationLoss"));
  };
  expect_same();
  EXPECT_EQ(world.storage_notes(0).failed, 0) << world.log(0);
  EXPECT_EQ(world.progress(0).step, options.train.steps);
  std::filesystem::remove_all(world.checkpoint_folders().back());
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_GT(world.storage_notes(0).resumed_step, 0);
  expect_same();
}

TEST(Resharding, LeavesTheBitsOfAClickModelAsTheyAre) {
  const TemporaryFolder folder;
  expect_the_losses_of_a_calm_run(click_job(folder), {3, 4, 1, 2});
}

TEST(Resharding, LeavesTheBitsOfADenseModelAsTheyAre) {
  expect_the_losses_of_a_calm_run(mlp_job(), {3, 1, 2});
}

TEST(Resharding, EndsWithEveryStepWhateverTheConsistency) {
  const TemporaryFolder folder;
  const ParameterServersSpec kinds[] = {{.consistency = "asynchronous"},
                                        {.consistency = "boundedStaleness", .staleness = 2},
                                        {.consistency = "synchronous", .backupWorkers = 1}};
  for (const ParameterServersSpec& kind : kinds) {
    SCOPED_TRACE(kind.consistency);
    WorkerWorld::Options options = click_job(folder);
    options.servers = kind;
    options.servers->nodes = kServers;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(run_with_changes(world, options, {4, 2, 3}));
    EXPECT_EQ(world.progress(0).step, options.train.steps);
    EXPECT_EQ(world.progress(1).step, options.train.steps);
  }
}

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
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
