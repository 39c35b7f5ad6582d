// Workers of jobs with servers that are started anew without a new round.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "controller/plan/servers.h"
#include "tests/controller/plan/served_scene.h"

namespace lockstep::plan {
namespace {

// The agent has started the worker anew, in the view that it has.
WorkerState& start_worker(Scene& scene, int64_t index, WorkerPhase phase) {
  AgentState& state = scene.agent(index);
  state.phase = "Running";
  state.servers_started = state.servers_view;
  WorkerState& process = state.workers.front();
  process = {.rank = process.rank, .pid = 8, .running = true, .phase = phase};
  process.servers_view = state.servers_view;
  return process;
}

// The scene of a worker's process that has failed after it had trained.
Scene with_failed_worker(int64_t copies, int64_t exit_code = 137) {
  Scene scene = training(2, copies);
  scene.fail_worker(1, exit_code, 0.1, "Signal");
  return scene;
}

TEST(NewWorkers, TakeUpWhereThoseWereThatDied) {
  for (const int64_t copies : {0, 1}) {
    Scene scene = with_failed_worker(copies);
    const std::string hash = scene.status().worldHash;
    settle_all(scene);
    EXPECT_EQ(scene.status().round, 1);
    EXPECT_EQ(scene.status().worldHash, hash);
    EXPECT_EQ(scene.status().serversView, "2:1,1;1@2");
    EXPECT_EQ(scene.status().restarts, 1);
    EXPECT_EQ(scene.status().lastFailure->action, "RestartInPlace");
    EXPECT_EQ(scene.status().lastFailure->resumedStep, scene.status().lastFailure->step);
    const auto sent = only<PutAssignment>(scene.plan());
    ASSERT_EQ(sent.size(), 4u);
    EXPECT_EQ(sent.front().assignment->servers_view, "2:1,1;1@2");
    EXPECT_EQ(sent.front().assignment->protocol, kProtocolNewest);
    EXPECT_TRUE(assignment_from_json(to_json(*sent.front().assignment)).ok());
    settle_all(scene);
    EXPECT_EQ(scene.status().restarts, 1) << "the same failure does not count again";
  }
}

TEST(NewWorkers, AreMissedOnlyUntilTheyAreStarted) {
  Scene scene = with_failed_worker(0);
  settle_all(scene);
  EXPECT_TRUE(is_true(scene.status(), kRunning)) << "the others train";
  follow(scene, 2);
  WorkerState& process = start_worker(scene, 1, WorkerPhase::kLoading);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "2:1,1;1@2") << "nothing more is to be said";
  process.phase = WorkerPhase::kTraining;
  settle_all(scene);
  EXPECT_TRUE(is_true(scene.status(), kRunning));
  EXPECT_EQ(scene.status().round, 1);
}

TEST(NewWorkers, ThatFailAgainBeforeTheyTrainEndTheRound) {
  Scene scene = with_failed_worker(0);
  settle_all(scene);
  follow(scene, 2);
  start_worker(scene, 1, WorkerPhase::kBroadcasting);
  settle_all(scene);
  scene.fail_worker(1, 1, 0.1, "Error");
  scene.agent(1).workers.front().phase = WorkerPhase::kBroadcasting;
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().restarts, 2);
  EXPECT_TRUE(scene.status().serversView.starts_with("1:")) << scene.status().serversView;
}

TEST(NewWorkers, ThatFailAgainLaterAreStartedAgain) {
  Scene scene = with_failed_worker(0);
  settle_all(scene);
  follow(scene, 2);
  start_worker(scene, 1, WorkerPhase::kTraining);
  settle_all(scene);
  scene.fail_worker(1, 139, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "3:1,1;1@3");
  EXPECT_EQ(scene.status().restarts, 2);
}

TEST(NewWorkers, MustEndBeforeTheJobIsComplete) {
  Scene scene = with_failed_worker(0);
  settle_all(scene);
  for (const int64_t index : {0, 2, 3}) {
    WorkerState& process = scene.agent(index).workers.front();
    process.running = false;
    process.reason = "Completed";
  }
  settle_all(scene);
  EXPECT_FALSE(is_true(scene.status(), kComplete));
}

TEST(NewWorkers, AreTwoWhereTwoDie) {
  Scene scene = with_failed_worker(0);
  settle_all(scene);
  scene.fail_worker(0, 137, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "3:1,1;0@3,1@2");
  EXPECT_EQ(scene.status().restarts, 2);
}

TEST(NewWorkers, AreTwoWhereTwoDieAtOnce) {
  Scene scene = with_failed_worker(0);
  scene.fail_worker(0, 137, 0.05, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "3:1,1;0@3,1@2");
}

TEST(NewWorkers, DieWithAServerWhoseCopiesAreThere) {
  for (const double seconds_ago : {0.05, 0.2}) {
    Scene scene = with_failed_worker(1);
    scene.fail_worker(kWorkers, 137, seconds_ago, "Signal");
    settle_all(scene);
    EXPECT_EQ(scene.status().round, 1);
    EXPECT_EQ(scene.status().restarts, 2);
  }
}

TEST(NewWorkers, NeedOneProcessOnEachNode) {
  Scene scene = training(2, 0);
  EXPECT_TRUE(has_views(make_pass(scene.seen, scene.now, scene.limits)));
  scene.seen.job.spec.processesPerNode = 2;
  EXPECT_FALSE(has_views(make_pass(scene.seen, scene.now, scene.limits)));
}

TEST(NewWorkers, ThatFailAgainWithoutProgressAreStartedLater) {
  Scene scene = with_failed_worker(0);
  settle_all(scene);
  EXPECT_FALSE(only<PutAssignment>(scene.plan()).empty());
  follow(scene, 2);
  start_worker(scene, 1, WorkerPhase::kTraining);
  settle_all(scene);
  scene.fail_worker(1, 139, 0.1, "Signal");
  settle_all(scene);
  ASSERT_EQ(scene.status().serversView, "3:1,1;1@3");
  EXPECT_TRUE(only<PutAssignment>(scene.plan()).empty()) << "it waits";
  scene.advance(std::chrono::minutes(1));
  for (auto& [uid, agent] : scene.seen.agents) agent.last_heard = scene.now;
  EXPECT_FALSE(only<PutAssignment>(scene.plan()).empty());
}

TEST(NewWorkers, AreAwayWhileAServerWithCopiesDies) {
  Scene scene = with_failed_worker(1);
  settle_all(scene);
  scene.fail_worker(kWorkers, 137, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "3:-3,1;1@2");
}

TEST(NewWorkers, ANewRoundBeginsWhereTheRoundCannotGoOn) {
  struct Case {
    const char* name;
    std::function<void(Scene&)> change;
  };
  const Case cases[] = {
      {"it had not trained",
       [](Scene& scene) { scene.agent(1).workers.front().phase = WorkerPhase::kBroadcasting; }},
      {"it lost a peer",
       [](Scene& scene) { scene.agent(1).workers.front().exit_code = kExitPeerLost; }},
      {"an agent does not know such views",
       [](Scene& scene) { scene.agent(0).protocol = kProtocolWithNewWorkers - 1; }},
      {"a server without copies is gone, too",
       [](Scene& scene) { scene.fail_worker(kWorkers, 137, 0.05, "Signal"); }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    Scene scene = with_failed_worker(0);
    one.change(scene);
    settle_all(scene);
    scene.advance(std::chrono::seconds(6));  // for others to tell more
    for (auto& [uid, agent] : scene.seen.agents) agent.last_heard = scene.now;
    settle_all(scene);
    EXPECT_EQ(scene.status().round, 2);
    EXPECT_EQ(scene.status().serversView.find(';'), std::string::npos)
        << scene.status().serversView;
  }
}

TEST(NewWorkers, HaveAViewThatOlderAgentsWouldRefuse) {
  Scene scene = with_failed_worker(0);
  settle_all(scene);
  const Pass pass = make_pass(scene.seen, scene.now, scene.limits);
  EXPECT_TRUE(has_new_workers(pass));
  const auto sent = only<PutAssignment>(scene.plan());
  ASSERT_FALSE(sent.empty());
  Assignment assignment = *sent.front().assignment;
  assignment.protocol = kProtocolWithNewWorkers - 1;
  EXPECT_FALSE(assignment_from_json(to_json(assignment)).ok());
}

// A round with places, in which the worker of rank 1 loses its pod without a trace of a stop.
Scene with_lost_pod() {
  Scene scene = training(2, 0, true);
  for (PodView& pod : scene.seen.pods) {
    if (pod.node_index != 1) continue;
    pod.phase = "Failed";
    pod.exit_code = 137;
  }
  settle_all(scene);
  return scene;
}

void run_pod_of_worker(Scene& scene, int64_t incarnation) {
  run_next_pod(scene, 1, incarnation, "10.0.9.9");
  settle_all(scene);
}

TEST(NewWorkers, AreStartedInOtherPodsIfTheirsAreLost) {
  Scene scene = with_lost_pod();
  const std::string hash = scene.status().worldHash;
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "2:1,1#8;1@2@1/10.0.0.2>2/");
  EXPECT_EQ(scene.status().members, "1,2,1,1");
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().lastFailure->action, "RecreatePod");
  EXPECT_TRUE(only<CreatePod>(scene.plan()).empty()) << "the others must know first";
  follow(scene, 2);
  const Plan plan = scene.plan();
  ASSERT_EQ(only<CreatePod>(plan).size(), 1u);
  EXPECT_EQ(only<CreatePod>(plan).front().name, "job-worker-1-2");
  run_pod_of_worker(scene, 2);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "3:1,1#8;1@3@1/10.0.0.2>2/10.0.9.9");
  const auto puts = only<PutAssignment>(scene.plan());
  ASSERT_EQ(puts.size(), 4u) << "the others learn of it, too";
  EXPECT_EQ(std::ranges::count(puts, 1, &PutAssignment::node_index), 1);
  const Assignment& to_it = *puts.front().assignment;
  EXPECT_EQ(to_it.hash, hash);
  EXPECT_EQ(to_it.world.members[1].host, "10.0.0.2") << "as when the round began";
  EXPECT_EQ(to_it.servers_view, scene.status().serversView);
  EXPECT_EQ(to_it.protocol, kProtocolWithPlaces);
  AgentState& state = scene.add_agent(1);
  follow(scene, 3);
  state.servers_started = 3;
  settle_all(scene);
  EXPECT_TRUE(is_true(scene.status(), kRunning));
  EXPECT_EQ(scene.status().worldHash, hash);
  EXPECT_TRUE(only<PutAssignment>(scene.plan()).empty());
}

TEST(NewWorkers, WhoseNextPodsAreLostTooGetFurtherOnes) {
  Scene scene = with_lost_pod();
  follow(scene, 2);
  run_pod_of_worker(scene, 2);
  for (PodView& pod : scene.seen.pods) {
    if (pod.node_index == 1) pod.phase = "Failed";
  }
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "4:1,1#8;1@4@1/10.0.0.2>3/");
  EXPECT_EQ(scene.status().restarts, 2);
}

// Their processes may go on, and push.
TEST(NewWorkers, BeginAnotherRoundIfNobodyKnowsThatTheirPodsHaveEnded) {
  Scene scene = training(2, 0, true);
  scene.advance(std::chrono::seconds(60));
  for (auto& [uid, agent] : scene.seen.agents) {
    if (Scene::edit(agent).node_index != 1) agent.last_heard = scene.now;
  }
  settle_all(scene);
  EXPECT_EQ(scene.status().lastFailure->reason, "AgentSilent");
  EXPECT_EQ(scene.status().worldHash, "");
  EXPECT_EQ(scene.status().members, "1,2,1,1");
}

TEST(NewWorkers, LoseTheirPodsTogetherWithServersThatHaveCopies) {
  Scene scene = training(3, 1, true);
  for (PodView& pod : scene.seen.pods) {
    if (pod.node_index == 0 || pod.node_index == 2) pod.phase = "Failed";
  }
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "2:-2@1/10.0.0.3>2/,1,1#12;0@2@1/10.0.0.1>2/");
  EXPECT_EQ(scene.status().restarts, 1);
}

TEST(NewWorkers, BeginAnotherRoundIfTheirPodsAreStoppedOrTheirAgentsAreOlder) {
  Scene old = training(2, 0, false);
  for (PodView& pod : old.seen.pods) {
    if (pod.node_index == 1) pod.phase = "Failed";
  }
  settle_all(old);
  EXPECT_EQ(old.status().worldHash, "") << "it ended";
  Scene stopped = training(2, 0, true);
  for (PodView& pod : stopped.seen.pods) {
    if (pod.node_index == 1) pod.terminating = true;
  }
  settle_all(stopped);
  EXPECT_EQ(stopped.status().serversView.find(';'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::plan
