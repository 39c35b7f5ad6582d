// A job that grows while the cluster has no room for it.
#include <gtest/gtest.h>

#include "controller/plan/names.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;

// Two nodes train and four are wanted. The server accepts the new pods, but no machine has room for
// them.
struct Growing : Scene {
  Growing() : Scene(2) {
    train();
    seen.job.spec.nodes = 4;
    ++seen.job.metadata.generation;
    settle();
    for (int64_t i = 2; i < 4; ++i) add_waiting_pod(i);
    settle();
  }
  PodView& add_waiting_pod(int64_t index, int64_t incarnation = 1) {
    PodView& pod = add_pod(index, incarnation);
    pod.phase = "Pending";
    pod.ip = pod.node_name = "";
    pod.scheduled = false;
    pod.unscheduled_reason = "0/2 nodes are available";
    pod.created_in_round = status().round;
    pod.created_at = seen.wall_now;
    return pod;
  }
  void start_waiting_pods() {
    for (PodView& pod : seen.pods) {
      if (pod.phase != "Pending") continue;
      pod.phase = "Running";
      pod.ip = "10.0.1." + std::to_string(pod.node_index);
      pod.scheduled = true;
    }
  }
  void complete(int64_t index) {
    agent(index).phase = "Completed";
    agent(index).workers[0].running = false;
    agent(index).workers[0].reason = "Completed";
  }
};

TEST(Growth, TheRoundGoesOnUntilEverybodyWhoJoinsItRuns) {
  Growing scene;
  EXPECT_EQ(scene.status().members, "1,1,1,1");
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_NE(scene.status().worldHash, "");
  EXPECT_EQ(scene.status().rendezvous->worldSize, 2);
  EXPECT_EQ(scene.status().state, "Running");
  EXPECT_EQ(condition(scene.status(), kPodsScheduled).reason, "Unschedulable");
  EXPECT_TRUE(scene.plan().actions.empty()) << scene.plan().why;
  scene.start_waiting_pods();
  EXPECT_TRUE(is_decision(scene.plan()));
  scene.settle();
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().rendezvous->worldSize, 4);
  EXPECT_EQ(scene.status().restarts, 0);
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 4u);
}

TEST(Growth, OneOfTheNewPodsAloneChangesNothing) {
  Growing scene;
  scene.seen.pods[2].phase = "Running";
  scene.seen.pods[2].ip = "10.0.0.3";
  scene.seen.pods[2].scheduled = true;
  scene.settle();
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_TRUE(only<PutAssignment>(scene.plan()).empty());
}

TEST(Growth, ProgressIsStillSeen) {
  Growing scene;
  scene.agent(0).progress.emplace().step = 1234;
  scene.settle();
  ASSERT_TRUE(scene.status().progress);
  EXPECT_EQ(scene.status().progress->step, 1234);
}

TEST(Growth, TheJobIsCompleteOnceTheRanksOfItsRoundAre) {
  Growing scene;
  for (int64_t i = 0; i < 2; ++i) scene.complete(i);
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kComplete));
  EXPECT_EQ(condition(scene.status(), kComplete).message, "all 2 nodes completed round 1");
  const Plan plan = scene.plan();
  EXPECT_EQ(only<PutAssignment>(plan).size(), 2u) << "the round's agents are asked to exit";
  EXPECT_EQ(only<DeletePod>(plan).size(), 2u) << "pods without an agent are deleted";
}

TEST(Growth, AWorkersFailureIsARestartInPlaceOfTheSameSize) {
  Growing scene;
  scene.fail_worker(1, 139, 0.5);
  EXPECT_TRUE(is_decision(scene.plan()));
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().members, "1,1,1,1");
  EXPECT_EQ(scene.status().rendezvous->worldSize, 2);
  EXPECT_EQ(scene.status().lastFailure->action, "RestartInPlace");
  const auto puts = only<PutAssignment>(scene.plan());
  ASSERT_EQ(puts.size(), 2u);
  EXPECT_EQ(puts[0].assignment->world.members.size(), 2u);
}

TEST(Growth, AFailureOnceTheNewPodsRunBeginsTheLargerRound) {
  Growing scene;
  scene.start_waiting_pods();
  scene.fail_worker(1, 139, 0.5);
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().rendezvous->worldSize, 4);
}

TEST(Growth, SilenceIsNoticed) {
  Growing scene;
  EXPECT_LE(scene.plan().requeue_at, scene.now + scene.limits.agent_silence);
  scene.advance(scene.limits.agent_silence);
  scene.seen.agents["job-worker-0-1-uid"].last_heard = scene.now;
  scene.settle();
  ASSERT_TRUE(scene.status().lastFailure);
  EXPECT_EQ(scene.status().lastFailure->reason, "AgentSilent");
  EXPECT_EQ(scene.status().members, "1,2,1,1");
}

TEST(Growth, ALostPodOfTheRoundIsMadeAnewAndTheRoundFormedAgainWithoutTheOthers) {
  Growing scene;
  scene.seen.pods[1].phase = "Failed";
  scene.seen.pods[1].reason = "Evicted";
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().members, "1,2,1,1");
  EXPECT_EQ(scene.status().worldHash, "");
  const auto made = only<CreatePod>(scene.plan());
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].name, "job-worker-1-2");
  scene.add_pod(1, 2);
  EXPECT_TRUE(scene.settle());
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().rendezvous->worldSize, 2);
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 2u);
}

TEST(Growth, ALostPodThatWasToJoinIsReplacedAndCountedAndTheRoundGoesOn) {
  Growing scene;
  scene.seen.pods[3].phase = "Failed";
  scene.seen.pods[3].reason = "Evicted";
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().lastFailure->nodeIndex, 3);
  EXPECT_EQ(scene.status().members, "1,1,1,2");
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_NE(scene.status().worldHash, "");
  EXPECT_EQ(scene.status().state, "Running");
  EXPECT_TRUE(is_true(scene.status(), kRunning));
  EXPECT_FALSE(is_true(scene.status(), kRestarting));
  EXPECT_EQ(only<CreatePod>(scene.plan()).size(), 1u);
}

TEST(Growth, ALostPodThatWasToJoinCostsNoSteps) {
  Growing scene;
  scene.agent(0).progress.emplace().step = 8;
  scene.agent(0).storage = {.resumed_step = 5};
  scene.settle();
  scene.seen.pods[3].phase = "Failed";
  scene.seen.pods[3].reason = "Evicted";
  scene.settle();
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kRunning));
  EXPECT_EQ(scene.status().lastFailure->step, 8);
  EXPECT_EQ(scene.status().lastFailure->resumedStep, 8) << "the round goes on";
  EXPECT_EQ(scene.status().lost.steps, 0);
}

// The first failure's steps are known to be lost once its round trains.
TEST(Growth, ALostPodThatWasToJoinHidesNoStepsOfTheFailureBefore) {
  Growing scene;
  scene.agent(0).progress.emplace().step = 8;
  scene.settle();
  scene.fail_worker(0, 139, 0.5);
  scene.settle();
  ASSERT_EQ(scene.status().round, 2);
  scene.seen.pods[3].phase = "Failed";
  scene.seen.pods[3].reason = "Evicted";
  scene.settle();
  ASSERT_EQ(scene.status().lastFailure->nodeIndex, 3);
  EXPECT_EQ(scene.status().lastFailure->step, 8);
  for (int64_t i = 0; i < 3; ++i) scene.add_agent(i);
  scene.agent(0).progress.emplace().step = 6;
  scene.agent(0).storage = {.resumed_step = 5};
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kRunning));
  EXPECT_EQ(scene.status().lastFailure->resumedStep, 5);
  EXPECT_EQ(scene.status().lost.steps, 3);
}

TEST(Growth, AWorkersFailureBesideALostPodThatWasToJoinEndsTheRound) {
  Growing scene;
  scene.seen.pods[3].phase = "Failed";
  scene.seen.pods[3].reason = "Evicted";
  scene.fail_worker(0, 139, 0.5);
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().lastFailure->rank, 0);
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().members, "1,1,1,2");
}

TEST(Growth, APodThatIsToJoinMayWaitForRoomForAsLongAsItLikes) {
  Growing scene;
  scene.seen.job.spec.failure.pendingTimeoutSeconds = 60;
  scene.advance(seconds(3600));
  for (auto& [uid, agent] : scene.seen.agents) agent.last_heard = scene.now;
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 0);
  EXPECT_EQ(scene.status().members, "1,1,1,1");
}

TEST(Growth, TakenBackItWasNothing) {
  Growing scene;
  const std::string hash = scene.status().worldHash;
  scene.seen.job.spec.nodes = 2;
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,1");
  EXPECT_EQ(scene.status().worldHash, hash);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(only<DeletePod>(scene.plan()).size(), 2u);
  EXPECT_TRUE(only<PutAssignment>(scene.plan()).empty());
}

TEST(Growth, BeyondOneOfTheRoundTheShrunkJobFormsAnotherOne) {
  Growing scene;
  scene.seen.job.spec.nodes = 1;
  scene.settle();
  EXPECT_EQ(scene.status().members, "1");
  scene.seen.pods.resize(1);
  scene.settle();
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().rendezvous->worldSize, 1);
}

TEST(Growth, OfASpecThatIsNotValidNobodyKnowsHowManyAreInTheRound) {
  Growing scene;
  scene.seen.job.spec.processesPerNode = 2;
  ++scene.seen.job.metadata.generation;
  scene.complete(0);
  scene.settle();
  EXPECT_FALSE(is_true(scene.status(), kComplete));
  scene.seen.job.spec.processesPerNode = 0;
  scene.complete(1);
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kComplete));
}

}  // namespace
}  // namespace lockstep::plan
