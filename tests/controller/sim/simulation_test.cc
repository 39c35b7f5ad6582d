#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <set>
#include <thread>

#include "common/api/servers_view.h"
#include "common/base/log.h"
#include "controller/plan/conditions.h"
#include "controller/plan/network_policy.h"
#include "tests/controller/sim/mutants.h"
#include "tests/controller/sim/round_choices.h"
#include "tests/controller/sim/seeds.h"

namespace lockstep::sim {
namespace {

// The controller_simulation test runs 2,000 seeds with build/bin/simulate.
constexpr uint64_t kSeeds = 300;
// Most mutants are found by the first few seeds. One that needs a lease to end while a write waits
// takes 685.
constexpr uint64_t kSeedsOfAMutant = 1500;
constexpr int kThreads = 2;
constexpr bool kHasSanitizers = sizeof LOCKSTEP_SANITIZERS > 1;

class Quiet : public ::testing::Environment {
  void SetUp() override { set_log_options({.minimum = LogLevel::kError}); }
};
const auto* const kQuiet = ::testing::AddGlobalTestEnvironment(new Quiet);

TEST(Simulation, AJobWithoutFaultsIsCompleteInItsFirstRound) {
  Simulation simulation(1);
  const std::string key =
      simulation.world.users.add_job({.name = "quiet", .nodes = 4, .steps = 20, .max_restarts = 0});
  ASSERT_TRUE(simulation.run(std::chrono::minutes(5), [&] { return simulation.is_over(key); }))
      << simulation.describe();
  const TrainingJobStatus status = simulation.status(key);
  EXPECT_TRUE(is_true(status, kComplete)) << simulation.describe();
  EXPECT_EQ(status.round, 1);
  EXPECT_EQ(status.restarts, 0);
  EXPECT_EQ(status.members, "1,1,1,1");
  EXPECT_EQ(status.progress->step, 20);
  EXPECT_EQ(status.state, "Complete");
  EXPECT_TRUE(
      simulation.run(std::chrono::minutes(1), [&] { return simulation.world.nodes.live() == 0; }));
}

TEST(Simulation, EveryJobConvergesOnceFaultsStopAndNoInvariantBreaksBefore) {
  const CampaignResult result = run_seeds(1, kSeeds, kThreads);
  for (const SeedResult& failed : result.failed) {
    ADD_FAILURE() << "seed " << failed.seed << ": " << failed.violation;
  }
  for (size_t i = 0; i < kFaults; ++i) {
    EXPECT_GT(result.counts.faults[i], 0) << fault_name(static_cast<Fault>(i));
  }
  for (size_t i = 0; i < kTransitions; ++i) {
    EXPECT_GT(result.counts.transitions[i], 0) << transition_name(static_cast<Transition>(i));
  }
}

TEST(Simulation, ASeedIsReplayedExactly) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const SeedResult once = run_seed(seed);
    EXPECT_GE(once.counts.jobs, 3);
    EXPECT_GE(once.counts.all_faults(), 10);
    EXPECT_GE(once.counts.events, 200);
    EXPECT_EQ(run_seed(seed).trace_hash, once.trace_hash) << "seed " << seed;
    EXPECT_NE(run_seed(seed + 1).trace_hash, once.trace_hash) << "seed " << seed;
  }
}

TEST(Simulation, RoundsLeaveOutAnyNodesAndTheyComeBack) {
  const CampaignResult result = run_seeds(1, kSeeds, kThreads, leaving_out_nodes());
  for (const SeedResult& failed : result.failed) {
    ADD_FAILURE() << "seed " << failed.seed << ": " << failed.violation;
  }
  EXPECT_GT(result.counts.left_out, 100);
  EXPECT_GT(result.counts.came_back, 100);
}

Mutation with_network_policies() {
  Mutation mutation;
  mutation.limits.network_policies.emplace();
  return mutation;
}

TEST(Simulation, NetworkPoliciesHoldNoJobUp) {
  const CampaignResult result = run_seeds(1, kSeeds / 3, kThreads, with_network_policies());
  for (const SeedResult& failed : result.failed) {
    ADD_FAILURE() << "seed " << failed.seed << ": " << failed.violation;
  }
}

// Other clients remove policies, a controller dies after some of its writes, and watches lag.
TEST(Simulation, JobsHaveTheNetworkPoliciesThatTheyAskFor) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed, with_network_policies(), 2);
    World& world = simulation.world;
    const std::string key = world.users.add_job({.name = "trains", .nodes = 2, .steps = 2000});
    const std::string other =
        world.users.add_job({.name = "runs", .steps = 2000, .is_command = true});
    for (const Fault fault : {Fault::kServerError, Fault::kThrottled, Fault::kLostReply,
                              Fault::kWatchCut, Fault::kLaggingWatch, Fault::kCrash}) {
      world.chance.rate(fault) = 0.1;
    }
    const auto pass = [&](Duration time) { simulation.run(time, [] { return false; }); };
    const auto policies = [&world] { return world.store.all(loop::kNetworkPolicies); };
    for (int i = 0; i < 4; ++i) {
      pass(std::chrono::seconds(20));
      const FakeStore::Objects before = policies();
      for (const auto& [name, policy] : before) world.store.remove(loop::kNetworkPolicies, name);
    }
    world.calm_down();
    pass(std::chrono::minutes(3));
    ASSERT_TRUE(world.chance.violations.empty()) << simulation.describe();
    ASSERT_FALSE(simulation.is_over(key) || simulation.is_over(other));
    ASSERT_EQ(policies().size(), 1u) << simulation.describe();
    const Json& job = *world.store.find(loop::kTrainingJobs, key);
    const Json policy = *policies().begin()->second;
    EXPECT_EQ(plan::controller_uid(policy), uid_of(job));
    EXPECT_EQ(policy["spec"],
              plan::make_network_policy(*stored_training_job_from_json(job), {})["spec"]);
    world.store.update(loop::kTrainingJobs, key, [](Json& changed) {
      changed["spec"]["security"]["networkPolicy"] = "none";
    });
    world.store.update(loop::kTrainingJobs, other,
                       [](Json& changed) { changed["spec"]["security"]["networkPolicy"] = "job"; });
    pass(std::chrono::minutes(3));
    ASSERT_EQ(policies().size(), 1u) << simulation.describe();
    EXPECT_EQ(plan::controller_name(*policies().begin()->second), "runs");
  }
}

std::vector<int64_t> without_node_1(const plan::Pass& pass) {
  std::vector<int64_t> nodes = plan::members_of_round(pass);
  std::erase(nodes, 1);
  return nodes;
}

// The first controller's image has agents of protocol 2, the next one's has new ones.
TEST(Simulation, AgentsThatAreTooOldForARoundAreReportedUntilTheJobIsSuspendedAndResumed) {
  Mutation mutation = leaving_out_nodes(without_node_1);
  mutation.oldest_protocol = kProtocolWithLayouts - 1;
  Simulation simulation(1, mutation);
  World& world = simulation.world;
  const std::string key = world.users.add_job({.name = "gap", .nodes = 3});
  const std::string ordinary = world.users.add_job({.name = "ordinary", .nodes = 2});
  const auto is_over = [&] { return simulation.is_over(key); };
  EXPECT_FALSE(simulation.run(std::chrono::minutes(20), is_over));
  EXPECT_TRUE(world.chance.violations.empty()) << simulation.describe();
  EXPECT_TRUE(simulation.is_over(ordinary)) << "its round has node 0 alone, as any agent knows it";
  const TrainingJobStatus status = simulation.status(key);
  const Condition* ready = find_condition(status, kReady);
  ASSERT_NE(ready, nullptr);
  EXPECT_EQ(ready->reason, "AgentTooOld") << simulation.describe();
  EXPECT_NE(ready->message.find("speaks protocol version 2, but the round leaves out nodes"),
            std::string::npos)
      << ready->message;
  EXPECT_EQ(status.restarts, 0);
  EXPECT_EQ(status.rendezvous->nodeIndices, "0,2");

  const auto set_suspended = [&](bool value) {
    world.store.update(loop::kTrainingJobs, key,
                       [&](Json& job) { job["spec"]["suspend"] = value; });
  };
  world.chance.rate(Fault::kTerminated) = 1;
  simulation.run(std::chrono::seconds(1), [] { return false; });
  world.chance.rate(Fault::kTerminated) = 0;
  set_suspended(true);
  simulation.run(std::chrono::minutes(2), [] { return false; });
  set_suspended(false);
  EXPECT_TRUE(simulation.run(std::chrono::minutes(30), is_over)) << simulation.describe();
  EXPECT_TRUE(is_true(simulation.status(key), kComplete)) << simulation.describe();
}

struct Search {
  SeedResult found;
  SeedResult again;
  uint64_t seeds = 0;
};

// A mutant may break other invariants first, so the search goes on until its own.
Search search(const Mutant& mutant) {
  Search search;
  const auto is_found = [&] { return search.found.violation.starts_with(mutant.found_by); };
  while (search.seeds < kSeedsOfAMutant && !is_found()) {
    search.found = run_seed(++search.seeds, mutant.mutation);
  }
  search.again = run_seed(search.found.seed, mutant.mutation);
  return search;
}

TEST(Simulation, EveryWrongPolicyAndEveryWrongPartIsFoundByItsInvariant) {
  if (kHasSanitizers) GTEST_SKIP() << "with sanitizers the wrong parts take more than an hour";
  const std::vector<Mutant> mutants = all_mutants();
  EXPECT_GE(mutants.size(), 60u);
  std::vector<Search> searches(mutants.size());
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> pool;
  for (int i = 0; i < kThreads; ++i) {
    pool.emplace_back([&] {
      for (size_t at = next++; at < mutants.size(); at = next++) {
        searches[at] = search(mutants[at]);
      }
    });
  }
  pool.clear();
  for (size_t i = 0; i < mutants.size(); ++i) {
    const auto& [found, again, seeds] = searches[i];
    EXPECT_TRUE(found.violation.starts_with(mutants[i].found_by))
        << mutants[i].name << ": expected a violation of " << mutants[i].found_by
        << ", the last one was \"" << found.violation << "\"";
    EXPECT_EQ(again.violation, found.violation) << "seed " << found.seed;
    EXPECT_EQ(again.trace_hash, found.trace_hash) << "seed " << found.seed;
    std::printf("%-50s %3d seeds  %s\n", mutants[i].name.c_str(), static_cast<int>(seeds),
                found.violation.substr(0, found.violation.find('\n')).c_str());
  }
}

TEST(Simulation, MoreFailuresThanRestartsAllowedFailTheJob) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    simulation.world.chance.rate(Fault::kWorkerKilled) = 0.2;
    const std::string key = simulation.world.users.add_job(
        {.name = "doomed", .nodes = 2, .steps = 100'000, .max_restarts = 3});
    ASSERT_TRUE(simulation.run(std::chrono::hours(1), [&] { return simulation.is_over(key); }))
        << simulation.describe();
    const TrainingJobStatus status = simulation.status(key);
    ASSERT_TRUE(is_true(status, kFailed)) << simulation.describe();
    EXPECT_EQ(status.restarts, 3);
    EXPECT_EQ(status.lastFailure->exitCode, 137);
    EXPECT_EQ(status.lastFailure->action, "Fail");
    const std::string message = find_condition(status, kFailed)->message;
    EXPECT_NE(message.find("exit code 137"), std::string::npos) << message;
    EXPECT_NE(message.find("ended by the simulation"), std::string::npos) << message;
  }
}

// Its program reports nothing and exits at every start, while controllers crash and pods are lost.
TEST(Simulation, AProgramThatNeverStartsEndsItsJobWhateverElseFails) {
  const Mutation silent = with_agents({}, [](AgentState& state) { state.progress.reset(); });
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed, silent);
    Chance& chance = simulation.world.chance;
    chance.rate(Fault::kWorkerExit) = 1;
    chance.rate(Fault::kCrash) = 0.1;
    chance.rate(Fault::kConflict) = 0.1;
    chance.rate(Fault::kPodDeleted) = 0.002;
    const std::string key = simulation.world.users.add_job(
        {.name = "doomed", .nodes = 2, .steps = 100, .max_restarts = 10'000, .is_command = true});
    ASSERT_TRUE(simulation.run(std::chrono::hours(1), [&] { return simulation.is_over(key); }))
        << simulation.describe();
    EXPECT_TRUE(chance.violations.empty()) << simulation.describe();
    const TrainingJobStatus status = simulation.status(key);
    ASSERT_TRUE(is_true(status, kFailed)) << simulation.describe();
    EXPECT_EQ(find_condition(status, kFailed)->reason, "NeverStarted");
    EXPECT_EQ(status.lastFailure->exitCode, kExitOfRules);
    EXPECT_GE(status.lastFailure->number, 3);
  }
}

TEST(Simulation, AJobThatGrowsWithoutRoomLosesNothing) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    const std::string key = simulation.world.users.add_job(
        {.name = "growing", .nodes = 2, .steps = 30, .max_restarts = 1, .pending_timeout = 20});
    const auto trains = [&] { return is_true(simulation.status(key), kRunning); };
    ASSERT_TRUE(simulation.run(std::chrono::minutes(5), trains)) << simulation.describe();
    simulation.world.chance.rate(Fault::kUnschedulable) = 1;
    simulation.world.store.update(loop::kTrainingJobs, key,
                                  [](Json& job) { job["spec"]["nodes"] = 4; });
    ASSERT_TRUE(simulation.run(std::chrono::minutes(10), [&] { return simulation.is_over(key); }))
        << simulation.describe();
    const TrainingJobStatus status = simulation.status(key);
    EXPECT_TRUE(is_true(status, kComplete)) << simulation.describe();
    EXPECT_EQ(status.restarts, 0);
  }
}

// Workers and servers die, and the controller too.
TEST(Simulation, JobsWithServersHavePodsOfBothRolesAndSurviveTheLossOfEither) {
  int64_t lost_servers = 0;
  int64_t replaced = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    World& world = simulation.world;
    const std::string key = world.users.add_job(
        {.name = "served", .nodes = 2, .steps = 60, .max_restarts = 1000, .servers = 2});
    ASSERT_TRUE(simulation.run(std::chrono::minutes(5), [&] {
      return is_true(simulation.status(key), kRunning);
    })) << simulation.describe();
    const TrainingJobStatus running = simulation.status(key);
    EXPECT_EQ(running.members, "1,1,1,1");
    EXPECT_EQ(running.nodes, (NodesStatus{.desired = 2, .ready = 2}));
    EXPECT_EQ(running.servers, (NodesStatus{.desired = 2, .ready = 2}));
    EXPECT_EQ(running.rendezvous->worldSize, 4);
    std::set<std::string> names;
    for (const auto& [name, pod] : world.store.all(loop::kPods)) names.insert(name);
    EXPECT_EQ(names,
              (std::set<std::string>{"default/served-server-2-1", "default/served-server-3-1",
                                     "default/served-worker-0-1", "default/served-worker-1-1"}));
    for (const Fault fault : {Fault::kPodDeleted, Fault::kWorkerKilled, Fault::kServerError,
                              Fault::kLostReply, Fault::kWatchCut, Fault::kCrash}) {
      world.chance.rate(fault) = 0.05;
    }
    simulation.run(std::chrono::minutes(2), [&] { return simulation.is_over(key); });
    world.calm_down();
    ASSERT_TRUE(simulation.run(std::chrono::minutes(20), [&] { return simulation.is_over(key); }))
        << simulation.describe();
    EXPECT_TRUE(world.chance.violations.empty()) << simulation.describe();
    const TrainingJobStatus status = simulation.status(key);
    EXPECT_TRUE(is_true(status, kComplete)) << simulation.describe();
    replaced += status.members == "1,1,1,1" ? 0 : 1;
    for (const FailureStatus& failure : status.failures) {
      lost_servers += failure.nodeIndex >= 2 ? 1 : 0;
    }
  }
  EXPECT_GT(lost_servers, 0);
  EXPECT_GT(replaced, 10);
}

// Makes each message between the controller, the API server and agents one that may fail.
void disturb_messages(World& world, double rate) {
  for (const Fault fault : {Fault::kServerError, Fault::kLostRequest, Fault::kLostReply,
                            Fault::kWatchCut, Fault::kCrash, Fault::kStall}) {
    world.chance.rate(fault) = rate;
  }
}

// The job is complete once nothing fails any more, and no invariant broke.
void expect_completion(Simulation& simulation, const std::string& key) {
  simulation.world.calm_down();
  ASSERT_TRUE(simulation.run(std::chrono::minutes(20), [&] { return simulation.is_over(key); }))
      << simulation.describe();
  EXPECT_TRUE(simulation.world.chance.violations.empty()) << simulation.describe();
  EXPECT_TRUE(is_true(simulation.status(key), kComplete)) << simulation.describe();
}

// A round goes on without a server, and with it again, through faults of everything.
TEST(Simulation, RoundsGoOnWithTheCopiesOfServersThatDie) {
  int64_t views = 0;
  int64_t whole_again = 0;
  uint64_t moved = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    World& world = simulation.world;
    const std::string key = world.users.add_job({.name = "served",
                                                 .nodes = 2,
                                                 .steps = 100,
                                                 .max_restarts = 1000,
                                                 .saves = true,
                                                 .servers = 2 + static_cast<int64_t>(seed % 3),
                                                 .copies = 1});
    disturb_messages(world, 0.01);
    world.chance.rate(Fault::kWorkerKilled) = 0.004;
    world.chance.rate(Fault::kPodDeleted) = seed % 2 == 0 ? 0 : 0.002;
    world.chance.rate(Fault::kContainerExit) = 0.002;
    world.chance.rate(Fault::kNodeLost) = seed % 3 == 0 ? 0.001 : 0;
    simulation.run(std::chrono::minutes(4), [&] {
      const std::string view = simulation.status(key).serversView;
      whole_again += view.find(',') != std::string::npos && view.find_first_of("+-") > view.size();
      return simulation.is_over(key);
    });
    expect_completion(simulation, key);
    if (HasFatalFailure()) return;
    views += world.chance.counts.transitions[static_cast<size_t>(Transition::kServersView)];
    moved += world.chance.counts.transitions[static_cast<size_t>(Transition::kServerMoved)];
  }
  EXPECT_GT(views, 100);
  EXPECT_GT(whole_again, 0);
  EXPECT_GT(moved, 10) << "servers whose pods were lost";
}

// Workers that die next to servers are started anew in their round, with copies and without.
TEST(Simulation, RoundsGoOnWithWorkersThatAreStartedAnew) {
  uint64_t returned = 0;
  int64_t rounds = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    World& world = simulation.world;
    const std::string key = world.users.add_job({.name = "served",
                                                 .nodes = 3,
                                                 .steps = 100,
                                                 .max_restarts = 1000,
                                                 .saves = true,
                                                 .servers = 2,
                                                 .copies = static_cast<int64_t>(seed % 2)});
    disturb_messages(world, 0.01);
    world.chance.rate(Fault::kWorkerKilled) = 0.004;
    simulation.run(std::chrono::minutes(4), [&] { return simulation.is_over(key); });
    expect_completion(simulation, key);
    if (HasFatalFailure()) return;
    returned += world.chance.counts.transitions[static_cast<size_t>(Transition::kWorkerReturned)];
    rounds += simulation.status(key).round;
  }
  EXPECT_GT(returned, 40);
  std::printf("%llu workers returned, %lld rounds\n", static_cast<unsigned long long>(returned),
              static_cast<long long>(rounds));
}

// Users add servers to rounds and take them away, through faults of everything.
TEST(Simulation, RoundsGoOnWithMoreAndFewerServers) {
  uint64_t added = 0;
  uint64_t removed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    World& world = simulation.world;
    const std::string key = world.users.add_job({.name = "served",
                                                 .nodes = 2,
                                                 .steps = 150,
                                                 .max_restarts = 1000,
                                                 .saves = seed % 2 == 0,
                                                 .servers = 2 + static_cast<int64_t>(seed % 2),
                                                 .copies = static_cast<int64_t>(seed / 2 % 2)});
    disturb_messages(world, seed % 5 == 0 ? 0 : 0.01);
    world.chance.rate(Fault::kScaleServers) = 0.05;
    world.chance.rate(Fault::kWorkerKilled) = seed % 3 == 0 ? 0.002 : 0;
    world.chance.rate(Fault::kPodDeleted) = seed % 7 == 0 ? 0.002 : 0;
    world.chance.rate(Fault::kContainerExit) = seed % 4 == 0 ? 0.001 : 0;
    world.chance.rate(Fault::kNodeLost) = seed % 8 == 0 ? 0.001 : 0;
    simulation.run(std::chrono::minutes(4), [&] { return simulation.is_over(key); });
    expect_completion(simulation, key);
    if (HasFatalFailure()) return;
    added += world.chance.counts.transitions[static_cast<size_t>(Transition::kServerAdded)];
    removed += world.chance.counts.transitions[static_cast<size_t>(Transition::kServerRemoved)];
  }
  EXPECT_GT(added, 60);
  EXPECT_GT(removed, 40);
  std::printf("%llu servers added, %llu removed\n", static_cast<unsigned long long>(added),
              static_cast<unsigned long long>(removed));
}

// Returns how many servers count in the newest view of the round.
int64_t servers_now(const Simulation& simulation, const std::string& key, int64_t workers) {
  const TrainingJobStatus status = simulation.status(key);
  if (!status.rendezvous) return 0;
  const Result<ServersView> view = servers_view_from_text(
      status.serversView, static_cast<size_t>(status.rendezvous->worldSize - workers));
  return view.ok() ? static_cast<int64_t>(counted_servers(*view)) : -1;
}

// Within the round, or in the next one if something else ended it.
TEST(Simulation, RoundsReachTheNumberOfServersThatUsersWantedLast) {
  constexpr int64_t kWorkers = 2;
  int64_t changed = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    World& world = simulation.world;
    const std::string key = world.users.add_job({.name = "served",
                                                 .nodes = kWorkers,
                                                 .steps = 100000,
                                                 .max_restarts = 1000,
                                                 .saves = true,
                                                 .servers = 3,
                                                 .copies = static_cast<int64_t>(seed % 2)});
    disturb_messages(world, 0.01);
    world.chance.rate(Fault::kScaleServers) = 0.05;
    world.chance.rate(Fault::kWorkerKilled) = seed % 3 == 0 ? 0.002 : 0;
    world.chance.rate(Fault::kPodDeleted) = seed % 4 == 0 ? 0.002 : 0;
    world.chance.rate(Fault::kNodeLost) = seed % 5 == 0 ? 0.001 : 0;
    simulation.run(std::chrono::minutes(3), [] { return false; });
    world.calm_down();
    const Json& job = *world.store.find(loop::kTrainingJobs, key);
    const int64_t wanted = job["spec"]["parameterServers"]["nodes"].get<int64_t>();
    EXPECT_TRUE(simulation.run(std::chrono::minutes(15),
                               [&] { return servers_now(simulation, key, kWorkers) == wanted; }))
        << "wanted " << wanted << ", have " << servers_now(simulation, key, kWorkers) << '\n'
        << simulation.describe();
    changed += wanted != 3;
  }
  EXPECT_GT(changed, 10);
}

TEST(Simulation, AFailureIsCountedOnceHoweverManyRanksSawIt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    const std::string key = simulation.world.users.add_job(
        {.name = "hit", .nodes = 4, .steps = 20, .max_restarts = 10});
    const auto trains = [&] {
      const TrainingJobStatus status = simulation.status(key);
      return is_true(status, kRunning) && status.progress && status.progress->step > 3;
    };
    ASSERT_TRUE(simulation.run(std::chrono::minutes(5), trains));
    simulation.world.chance.rate(Fault::kWorkerKilled) = 1;
    ASSERT_TRUE(simulation.run(std::chrono::minutes(1),
                               [&] { return simulation.world.nodes.failures_caused() > 0; }));
    simulation.world.calm_down();
    ASSERT_TRUE(simulation.run(std::chrono::minutes(10), [&] { return simulation.is_over(key); }))
        << simulation.describe();
    const TrainingJobStatus status = simulation.status(key);
    EXPECT_TRUE(is_true(status, kComplete)) << simulation.describe();
    EXPECT_EQ(status.restarts, 1);
    EXPECT_EQ(status.round, 2);
    EXPECT_EQ(status.members, "1,1,1,1");
    EXPECT_GT(status.lastFailure->recoverySeconds, 0);
    EXPECT_EQ(status.lastFailure->action, "RestartInPlace");
  }
}

// Whichever pod is deleted, and however long each rank saves.
TEST(Simulation, ADeletedPodOfAJobThatSavesCostsNoStepAndIsNoFailure) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    World& world = simulation.world;
    const std::string key = world.users.add_job(
        {.name = "drained", .nodes = 3, .steps = 30, .max_restarts = 0, .saves = true});
    int64_t furthest = 0;
    int64_t repeated = 0;
    const auto step = [&] {
      const TrainingJobStatus status = simulation.status(key);
      const int64_t now = status.progress ? status.progress->step.value_or(0) : 0;
      repeated += now < furthest ? 1 : 0;
      furthest = std::max(furthest, now);
      return furthest;
    };
    // Not one of the steps that are saved anyway.
    ASSERT_TRUE(simulation.run(std::chrono::minutes(5), [&] { return step() == 8; }));
    const std::string pod = "default/drained-worker-" + std::to_string(seed % 3) + "-1";
    world.store.mark_deleted(loop::kPods, pod, world.chance.clock.wall_now(), 35);
    ASSERT_TRUE(simulation.run(std::chrono::minutes(10), [&] {
      return step() > 0 && simulation.is_over(key);
    })) << simulation.describe();
    const TrainingJobStatus status = simulation.status(key);
    EXPECT_TRUE(is_true(status, kComplete)) << simulation.describe();
    EXPECT_EQ(repeated, 0);
    EXPECT_EQ(status.round, 2);
    EXPECT_EQ(status.restarts, 0);
    EXPECT_FALSE(status.lastFailure);
    EXPECT_EQ(world.chance.counts.transitions[static_cast<size_t>(Transition::kDrained)], 1);
  }
}

}  // namespace
}  // namespace lockstep::sim
