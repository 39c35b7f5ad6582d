// Real processes of jobs with servers: workers die, and the processes that are started in their
// places go on where they were.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

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

constexpr int64_t kWorkers = 3;
constexpr size_t kServers = 2;

WorkerWorld::Options served(WorkerWorld::Options options) {
  options.nodes = kWorkers;
  options.servers = ParameterServersSpec{.nodes = static_cast<int64_t>(kServers)};
  return options;
}

WorkerWorld::Options click_job(const TemporaryFolder& folder) {
  WorkerWorld::Options options = served(long_click_world(folder));
  options.train.steps = 200;
  options.train.validation.everySteps = 50;
  options.train.batch.global = 48;
  options.checkpoint_every = 40;
  return options;
}

WorkerWorld::Options mlp_job() {
  WorkerWorld::Options options = served(long_table_world());
  options.train.steps = 150;
  options.train.batch.global = 18;
  return options;
}

// One kill: of this worker, once the condition holds for it.
struct Kill {
  int64_t rank = 0;
  std::function<bool(const ProgressNumbers&)> when;
};

std::function<bool(const ProgressNumbers&)> in_phase(WorkerPhase phase, int64_t step) {
  return [=](const ProgressNumbers& now) { return now.phase == phase && now.step >= step; };
}

std::function<bool(const ProgressNumbers&)> at_step(int64_t step) {
  return in_phase(WorkerPhase::kTraining, step);
}

void expect_good_ends(WorkerWorld& world) {
  const std::vector<int> codes = world.wait();
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(codes[static_cast<size_t>(rank)], 0) << "rank " << rank << ":\n" << world.log(rank);
  }
}

bool any_worker_runs(WorkerWorld& world) {
  for (int64_t rank = 0; rank < kWorkers; ++rank) {
    if (world.runs(rank)) return true;
  }
  return false;
}

// Runs a round in which workers are killed. All processes end well.
void run_with_kills(WorkerWorld& world, const std::vector<Kill>& kills) {
  ASSERT_NO_FATAL_FAILURE(world.start());
  ServersManager manager(world, {.workers = kWorkers, .servers = kServers});
  size_t next = 0;
  while (any_worker_runs(world)) {
    const bool is_due = next < kills.size() && world.runs(kills[next].rank) &&
                        kills[next].when(world.progress(kills[next].rank));
    if (is_due) manager.kill_worker(kills[next++].rank);
    sched_yield();
  }
  EXPECT_EQ(next, kills.size()) << "the round was over before all workers were killed";
  expect_good_ends(world);
}

void expect_all_steps(WorkerWorld& world, int64_t steps) {
  for (int64_t rank = 0; rank < kWorkers; ++rank) {
    EXPECT_EQ(world.progress(rank).step, steps) << world.log(rank);
  }
  EXPECT_EQ(std::ssize(world.metric("learningRate")), steps);
  EXPECT_EQ(world.storage_notes(0).failed, 0) << world.log(0);
}

// The losses of a run with kills are those of the undisturbed run.
void expect_the_undisturbed_run(const WorkerWorld::Options& options,
                                const std::vector<Kill>& kills) {
  WorkerWorld calm(options);
  ASSERT_NO_FATAL_FAILURE(calm.run());
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(run_with_kills(world, kills));
  expect_all_steps(world, options.train.steps);
  EXPECT_EQ(world.metric("loss"), calm.metric("loss"));
  EXPECT_EQ(world.metric("validationLoss"), calm.metric("validationLoss"));
}

// All of these wait for others, or are between steps.
TEST(ReturningWorkers, LeaveTheBitsOfSynchronousTrainingAsTheyAre) {
  const TemporaryFolder folder;
  const std::vector<Kill> kills{{1, in_phase(WorkerPhase::kSaving, 40)},
                                {0, in_phase(WorkerPhase::kValidating, 50)},
                                {2, in_phase(WorkerPhase::kValidating, 100)},
                                {0, in_phase(WorkerPhase::kSaving, 120)}};
  for (WorkerWorld::Options options : {click_job(folder), mlp_job()}) {
    options.train.steps = 500;  // on a busy machine a phase may pass unseen
    expect_the_undisturbed_run(options, kills);
  }
}

TEST(ReturningWorkers, CompleteEveryStepWhateverOthersDoMeanwhile) {
  const TemporaryFolder folder;
  const ParameterServersSpec kinds[] = {{.consistency = "asynchronous"},
                                        {.consistency = "boundedStaleness", .staleness = 1}};
  for (const ParameterServersSpec& kind : kinds) {
    for (const bool is_dense : {false, true}) {
      SCOPED_TRACE(kind.consistency + (is_dense ? ", dense" : ""));
      WorkerWorld::Options options = is_dense ? mlp_job() : click_job(folder);
      options.servers = kind;
      options.servers->nodes = kServers;
      WorkerWorld world(options);
      ASSERT_NO_FATAL_FAILURE(run_with_kills(world, {{1, at_step(10)},
                                                     {0, at_step(30)},
                                                     {1, at_step(45)},
                                                     {2, in_phase(WorkerPhase::kSaving, 80)}}));
      expect_all_steps(world, options.train.steps);
    }
  }
}

// Peers of an asynchronous job need not wait for it.
TEST(ReturningWorkers, AreNotMissedByAsynchronousPeers) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder);
  options.servers->consistency = "asynchronous";
  options.train.steps = 600;
  options.train.validation.everySteps = 0;
  options.checkpoint_every = 0;
  options.checkpoint_at_end = false;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(1, [](const ProgressNumbers& now) { return now.step >= 10; });
  world.kill(1, SIGKILL);
  world.wait_until(1, [](const ProgressNumbers&) { return false; });
  const int64_t lost_at = *world.progress(1).step;
  const int64_t others_at = *world.progress(0).step;
  world.wait_until(0, [&](const ProgressNumbers& now) { return now.step >= others_at + 50; });
  ASSERT_TRUE(world.runs(0)) << world.log(0);
  const ServersView view = view_with_new_worker(first_servers_view(kServers), 1);
  for (int64_t rank = 0; rank < world.size(); ++rank) world.give_view(rank, text_of(view));
  world.start_again(1, text_of(view));
  world.wait_until(1, [&](const ProgressNumbers& now) { return now.step > lost_at + 1; });
  EXPECT_NE(world.log(1).find("returning"), std::string::npos);
  expect_good_ends(world);
  EXPECT_EQ(world.progress(1).step, options.train.steps);
}

// Other workers may have seen that step: the process fails, and the controller begins the next
// round.
TEST(ReturningWorkers, FailIfAStepOfSynchronousTrainingWasPushedInPart) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder);
  options.train.steps = 100000;
  options.train.validation.everySteps = 0;
  options.checkpoint_every = 0;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  ServersManager manager(world, {.workers = kWorkers, .servers = kServers});
  // Until a kill hits a step in which some unit has the push.
  for (int64_t kills = 0; kills < 200 && world.runs(1); ++kills) {
    const int64_t step = world.progress(1).step.value_or(0);
    world.wait_until(1, [&](const ProgressNumbers& now) {
      return now.phase == WorkerPhase::kTraining && now.step > step + 2;
    });
    manager.kill_worker(1);
    world.wait_until(1, [&](const ProgressNumbers& now) {
      return now.phase >= WorkerPhase::kTraining && now.step > 0;
    });
  }
  EXPECT_FALSE(world.runs(1));
  EXPECT_NE(world.log(1).find("was lost while it pushed step"), std::string::npos) << world.log(1);
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    if (world.runs(rank)) world.kill(rank, SIGKILL);
  }
  world.wait();
}

// The worker looks for a server that says nothing any more, and that is then found to be lost.
TEST(ReturningWorkers, ComeBackThoughAServerIsLostMeanwhile) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder);
  options.train.steps = 100'000;
  options.servers->consistency = "asynchronous";
  options.servers->copies = 1;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  ServersManager manager(world, {.workers = kWorkers, .servers = kServers});
  world.wait_until(0, at_step(20));
  world.kill(manager.rank_of(0), SIGSTOP);
  manager.kill_worker(0);
  world.wait_until(0, in_phase(WorkerPhase::kForming, 0));
  manager.lose_pod(0);
  world.wait_until(0, [&](const ProgressNumbers& now) {
    manager.tend();
    return manager.are_all_whole() && now.phase == WorkerPhase::kTraining && now.step > 40;
  });
  world.kill(1, SIGTERM);
  for (const int code : world.wait()) EXPECT_EQ(code, kExitStopped) << world.log(0);
}

// LOCKSTEP_RETURNS: how many seeds, from LOCKSTEP_RETURNS_SEED.
// Kills workers and servers at random moments.
void run_with_random_kills(WorkerWorld& world, uint64_t seed, int64_t copies) {
  Random random(seed);
  world.start();
  ServersManager manager(world, {.workers = kWorkers, .servers = kServers});
  int64_t kills = 0;
  int64_t next_at = static_cast<int64_t>(2 + random.below(20));
  while (any_worker_runs(world)) {
    manager.tend();
    sched_yield();
    const auto rank = static_cast<int64_t>(random.below(kWorkers + kServers));
    const ProgressNumbers first = world.progress(0);
    if (first.phase < WorkerPhase::kTraining || first.step < next_at || !world.runs(rank)) continue;
    for (uint64_t i = random.below(60); i > 0; --i) sched_yield();
    const bool is_worker = rank < kWorkers;
    const bool trains = world.progress(rank).phase >= WorkerPhase::kTraining &&
                        world.progress(rank).phase < WorkerPhase::kFinishing;
    if (!world.runs(rank) || !trains) continue;
    const auto server = static_cast<size_t>(std::max<int64_t>(rank - kWorkers, 0));
    const ServersView after = next_view(manager.view(), server, ServerState::kGone);
    const bool is_whole = manager.view().servers[server].state == ServerState::kWhole;
    if (!is_worker && (!is_whole || !holds_everything(after, copies))) continue;
    is_worker ? manager.kill_worker(rank) : manager.kill(server);
    ++kills;
    next_at = first.step.value_or(0) + static_cast<int64_t>(random.below(40));
  }
  std::printf("seed %llu: %lld kills, last view %s\n", static_cast<unsigned long long>(seed),
              static_cast<long long>(kills), text_of(manager.view()).c_str());
  EXPECT_GT(kills, 0);
  for (size_t server = 0; server < kServers; ++server) {  // the controller's to end
    if (manager.view().servers[server].state != ServerState::kWhole) {
      world.kill(manager.rank_of(server), SIGKILL);
    }
  }
  const std::vector<int> codes = world.wait();
  for (int64_t rank = 0; rank < kWorkers; ++rank) {
    EXPECT_EQ(codes[static_cast<size_t>(rank)], 0) << "rank " << rank << ":\n" << world.log(rank);
  }
}

TEST(ReturningWorkers, SurviveRandomMomentsNextToServersThatDie) {
  const TemporaryFolder folder;
  const uint64_t first = number_from("LOCKSTEP_RETURNS_SEED", 1);
  const uint64_t runs = number_from("LOCKSTEP_RETURNS", 4);
  for (uint64_t seed = first; seed < first + runs; ++seed) {
    SCOPED_TRACE(seed);
    WorkerWorld::Options options = seed % 2 == 0 ? mlp_job() : click_job(folder);
    options.train.steps = 200;
    options.train.validation.everySteps = 20;
    options.checkpoint_every = 15;
    const bool is_bounded = seed % 4 >= 2;
    options.servers->consistency = is_bounded ? "boundedStaleness" : "asynchronous";
    options.servers->staleness = is_bounded ? 1 : 0;
    options.servers->copies = 1;
    WorkerWorld world(options);
    run_with_random_kills(world, seed, options.servers->copies);
    expect_all_steps(world, options.train.steps);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace lockstep::train
