#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "common/api/worker_config.h"
#include "controller/plan/names.h"
#include "controller/plan/plan.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(FailurePolicy, RestartsTheGangInPlaceWhenOneRankFails) {
  Scene scene(3);
  scene.train();
  scene.agent(0).progress.emplace();
  scene.agent(0).progress->step = 40;
  scene.fail_worker(1, 137, 2, "Signal");
  scene.fail_worker(0, kExitPeerLost, 1);
  scene.fail_worker(2, kExitPeerLost, 3);  // only reports a lost peer, although it failed first
  const Plan plan = scene.plan();
  EXPECT_TRUE(is_decision(plan)) << plan.why;
  scene.settle();
  const TrainingJobStatus& status = scene.status();
  EXPECT_EQ(status.round, 2);
  EXPECT_EQ(status.restarts, 1);
  EXPECT_EQ(status.members, "1,1,1");
  EXPECT_FALSE(status.worldHash.empty());
  EXPECT_EQ(status.state, "Restarting");
  EXPECT_FALSE(is_true(status, kRunning));
  const FailureStatus& failure = *status.lastFailure;
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.nodeIndex, 1);
  EXPECT_EQ(failure.node, "machine-1");
  EXPECT_EQ(failure.exitCode, 137);
  EXPECT_EQ(failure.reason, "Signal");
  EXPECT_EQ(failure.message, "the end of rank 1");
  EXPECT_EQ(failure.action, "RestartInPlace");
  EXPECT_EQ(failure.round, 1);
  EXPECT_EQ(failure.step, 40);
  EXPECT_EQ(failure.attempt, 1);
  EXPECT_EQ(failure.recoverySeconds, 0);
  const Plan next = scene.plan();
  EXPECT_EQ(only<PutAssignment>(next).size(), 3u);
  EXPECT_EQ(only<PutAssignment>(next)[0].assignment->world.round, 2);
  EXPECT_TRUE(only<CreatePod>(next).empty());
}

TEST(FailurePolicy, TheRecoveryIsTimedFromTheFailureToAllRanksTraining) {
  Scene scene(2);
  scene.train();
  scene.fail_worker(0, 1, 0.5);
  scene.settle();
  scene.advance(milliseconds(1300));
  scene.add_agent(0);
  scene.add_agent(1, WorkerPhase::kLoading);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->recoverySeconds, 0);
  scene.add_agent(1);
  scene.settle();
  EXPECT_NEAR(scene.status().lastFailure->recoverySeconds, 1.8, 1e-6);
  EXPECT_EQ(scene.status().state, "Running");
  EXPECT_FALSE(is_true(scene.status(), kRestarting));
  EXPECT_EQ(condition(scene.status(), kRestarting).reason, "Recovered");
}

TEST(FailurePolicy, NamesTheGuiltyOne) {
  struct Case {
    const char* name;
    std::function<void(Scene&)> harm;
    int64_t rank;
    int64_t exit_code;
    const char* reason;
    const char* members;
  };
  const Case cases[] = {
      {"the earlier of two",
       [](Scene& s) {
         s.fail_worker(2, 1, 1);
         s.fail_worker(1, 77, 5);
       },
       1, 77, "Error", "1,1,1"},
      {"a deleted pod, not the workers that lost it",
       [](Scene& s) {
         s.seen.pods[2].terminating = true;
         s.fail_worker(0, kExitPeerLost, 1);
       },
       -1, -1, "PodDeleted", "1,1,2"},
      {"a pod that ran out of memory",
       [](Scene& s) {
         s.seen.pods[0].phase = "Failed";
         s.seen.pods[0].exit_code = 137;
         s.seen.pods[0].reason = "OOMKilled";
       },
       -1, 137, "OOMKilled", "2,1,1"},
      {"a pod whose agent ran out of memory while its sidecar runs",
       [](Scene& s) {
         s.seen.pods[0].exit_code = 137;
         s.seen.pods[0].reason = "OOMKilled";
       },
       -1, 137, "OOMKilled", "2,1,1"},
      {"a pod whose agent failed while its sidecar runs, not the workers that lost it",
       [](Scene& s) {
         s.seen.pods[1].exit_code = 1;
         s.seen.pods[1].reason = "Error";
         s.fail_worker(0, kExitPeerLost, 1);
       },
       -1, 1, "PodFailed", "1,2,1"},
      {"a pod that is gone",
       [](Scene& s) {
         s.seen.pods.erase(s.seen.pods.begin() + 1);
         s.seen.absent_pods.insert("job-worker-1-1");
       },
       -1, -1, "PodLost", "1,2,1"},
      {"an agent that is being stopped",
       [](Scene& s) {
         s.fail_worker(1, kExitStopped, 0, "Stopped");
         s.agent(1).phase = "Stopping";
       },
       -1, -1, "PodStopped", "1,2,1"},
      {"an agent that fell silent",
       [](Scene& s) {
         s.advance(seconds(31));
         for (auto& [uid, view] : s.seen.agents) view.last_heard = s.now;
         s.seen.agents["job-worker-2-1-uid"].last_heard = s.now - seconds(31);
       },
       -1, -1, "AgentSilent", "1,1,2"},
      {"the rank that most workers blame, once all have ended",
       [](Scene& s) {
         for (int64_t i = 0; i < 3; ++i) s.fail_worker(i, kExitPeerLost, 1);
         s.agent(0).workers[0].suspect_rank = 1;
         s.agent(1).workers[0].suspect_rank = 2;
         s.agent(2).workers[0].suspect_rank = 1;
       },
       1, -1, "Suspected", "1,1,1"},
      {"a rank that hangs, immediately once all others have ended and report it",
       [](Scene& s) {
         for (const int64_t i : {0, 2}) {
           s.fail_worker(i, kExitPeerHung, 1);
           s.agent(i).workers[0].suspect_rank = 1;
         }
       },
       1, -1, "Hang", "1,1,1"},
      {"a program that could not be started",
       [](Scene& s) { s.fail_worker(1, 127, 1, "StartError"); }, 1, 127, "StartError", "1,1,1"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    Scene scene(3);
    scene.train();
    test.harm(scene);
    const Plan plan = scene.plan();
    ASSERT_TRUE(is_decision(plan)) << plan.why;
    const TrainingJobStatus status = written(scene, plan);
    ASSERT_TRUE(status.lastFailure);
    EXPECT_EQ(status.lastFailure->rank, test.rank);
    EXPECT_EQ(status.lastFailure->exitCode, test.exit_code);
    EXPECT_EQ(status.lastFailure->reason, test.reason);
    EXPECT_EQ(status.members, test.members);
    EXPECT_EQ(status.restarts, 1);
  }
}

TEST(PodFailure, HasAStableNameWhateverTheServerCallsIt) {
  struct Case {
    const char* phase;
    const char* reason;
    const char* disruption;
    const char* name;
  };
  const Case cases[] = {
      {"Failed", "", "", "PodFailed"},
      {"Failed", "Error", "", "PodFailed"},
      {"Failed", "OOMKilled", "", "OOMKilled"},
      {"Failed", "ContainerCannotRun", "", "StartError"},
      {"Failed", "Evicted", "", "Evicted"},
      {"Failed", "Evicted", "TerminationByKubelet", "Evicted"},
      {"Failed", "Terminated", "TerminationByKubelet", "NodeShutdown"},
      {"Failed", "Preempting", "", "Preempted"},
      {"Failed", "OutOfcpu", "", "PodRejected"},
      {"Failed", "UnexpectedAdmissionError", "", "PodRejected"},
      {"Running", "", "", "PodDeleted"},
      {"Running", "NodeLost", "", "NodeNotReady"},
      {"Running", "", "PreemptionByScheduler", "Preempted"},
      {"Running", "", "EvictionByEvictionAPI", "Evicted"},
      {"Running", "", "DeletionByTaintManager", "NodeTainted"},
      {"Failed", "", "DeletionByPodGC", "NodeDeleted"},
      {"Running", "", "SomethingNew", "PodDeleted"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(std::string(test.phase) + " " + test.reason + " " + test.disruption);
    Scene scene(2);
    scene.train();
    PodView& pod = scene.seen.pods[1];
    pod.phase = test.phase;
    pod.terminating = pod.phase == "Running";
    pod.reason = test.reason;
    pod.disruption = test.disruption;
    scene.settle();
    EXPECT_EQ(scene.status().lastFailure->reason, test.name);
    EXPECT_EQ(scene.status().lastFailure->action, "RecreatePod");
    EXPECT_EQ(scene.status().members, "1,2") << "the other pod is kept";
  }
}

TEST(FailurePolicy, WhatIsLostAfterTheWorkWasDoneIsNoFailure) {
  Scene scene(2);
  scene.train();
  for (int64_t i = 0; i < 2; ++i) {
    scene.agent(i).phase = "Completed";
    scene.agent(i).workers[0].running = false;
    scene.agent(i).workers[0].reason = "Completed";
  }
  scene.seen.pods[1].terminating = true;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kComplete));
  EXPECT_EQ(scene.status().restarts, 0);
}

TEST(FailurePolicy, WaitsForTheGuiltyOneWhileOnlyMessengersHaveSpoken) {
  Scene scene(2);
  scene.train();
  scene.fail_worker(0, kExitPeerLost, 1);
  Plan plan = scene.plan();
  EXPECT_TRUE(only<WriteStatus>(plan).empty()) << plan.why;
  EXPECT_EQ(plan.requeue_at, scene.now - seconds(1) + scene.limits.culprit_wait);
  scene.now = *plan.requeue_at;
  plan = scene.plan();
  EXPECT_EQ(written(scene, plan).restarts, 1);
}

// Only the end of its pod can have cut the connection, and that may be seen later than the report.
TEST(FailurePolicy, WaitsForTheLossOfAPeerThatHadEndedWell) {
  Scene scene(2);
  scene.train();
  scene.agent(0).phase = "Completed";
  scene.agent(0).workers[0].running = false;
  scene.agent(0).workers[0].reason = "Completed";
  scene.fail_worker(1, kExitPeerLost, 1);
  const Plan plan = scene.plan();
  EXPECT_TRUE(only<WriteStatus>(plan).empty()) << plan.why;
  EXPECT_EQ(plan.requeue_at, scene.now - seconds(1) + scene.limits.culprit_wait);
  scene.seen.pods[0].terminating = true;
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().lastFailure->reason, "PodDeleted");
  EXPECT_EQ(scene.status().members, "2,1");
}

TEST(FailurePolicy, AMachineThatIsGoneIsNotTakenForARankThatHangs) {
  Scene scene(2);
  scene.train();
  scene.advance(scene.limits.agent_healthy_within + seconds(1));
  scene.seen.agents["job-worker-0-1-uid"].last_heard = scene.now;
  scene.fail_worker(0, kExitPeerHung, 1);
  scene.agent(0).workers[0].suspect_rank = 1;
  const Plan plan = scene.plan();
  EXPECT_TRUE(only<WriteStatus>(plan).empty()) << plan.why;
  const Duration left = scene.limits.agent_silence - scene.limits.agent_healthy_within - seconds(1);
  EXPECT_EQ(plan.requeue_at, scene.now + left) << "then the agent counts as lost";
  scene.advance(left);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->reason, "AgentSilent");
  EXPECT_EQ(scene.status().members, "1,2");
  EXPECT_EQ(scene.status().restarts, 1);
}

TEST(FailurePolicy, AnAgentThatIsNotAskedYetIsHeardBeforeItsRankIsSaidToHang) {
  Scene scene(2);
  scene.train();
  scene.advance(scene.limits.agent_healthy_within + seconds(1));
  scene.seen.agents.erase("job-worker-1-1-uid");  // its pod was missing from the cache for a while
  scene.fail_worker(0, kExitPeerHung, 10);
  scene.agent(0).workers[0].suspect_rank = 1;
  const Plan plan = scene.plan();
  EXPECT_TRUE(only<WriteStatus>(plan).empty()) << plan.why;
  EXPECT_EQ(plan.watch.size(), 2u) << "both agents are polled from now on";
  EXPECT_TRUE(plan.requeue_at) << "the new agent may never answer";
}

TEST(FailurePolicy, ARankWhosePodIsNotInTheCacheIsLookedForBeforeItIsBlamed) {
  for (const int64_t exit_code : {kExitPeerHung, kExitPeerLost}) {
    Scene scene(2);
    scene.train();
    scene.seen.pods.pop_back();
    scene.fail_worker(0, exit_code, 10);
    scene.agent(0).workers[0].suspect_rank = 1;
    const Plan plan = scene.plan();
    EXPECT_EQ(written(scene, plan).restarts, 0) << exit_code;
    ASSERT_EQ(only<ConfirmPod>(plan).size(), 1u) << exit_code;
    EXPECT_EQ(only<ConfirmPod>(plan)[0].name, "job-worker-1-1") << exit_code;
  }
}

TEST(FailurePolicy, AMissingPodExplainsThatItsPeersLostIt) {
  Scene scene(2);
  scene.train();
  scene.seen.pods.pop_back();
  scene.seen.absent_pods.insert("job-worker-1-1");
  scene.fail_worker(0, kExitPeerLost, 0.1);
  scene.agent(0).workers[0].suspect_rank = 1;
  const TrainingJobStatus status = written(scene, scene.plan());
  ASSERT_TRUE(status.lastFailure);
  EXPECT_EQ(status.lastFailure->reason, "PodLost");
  EXPECT_EQ(status.members, "1,2");
}

TEST(FailurePolicy, AMissingPodIsLookedForBeforeItIsGivenUp) {
  Scene scene(2);
  scene.train();
  scene.seen.pods.pop_back();
  const Plan plan = scene.plan();
  ASSERT_EQ(only<ConfirmPod>(plan).size(), 1u);
  EXPECT_EQ(only<ConfirmPod>(plan)[0].name, "job-worker-1-1");
  EXPECT_EQ(written(scene, plan).restarts, 0);
}

TEST(FailurePolicy, ALostPodIsMadeAnewAloneAndTheRoundWaitsForIt) {
  Scene scene(2);
  scene.train();
  scene.seen.pods[1].phase = "Failed";
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,2");
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().worldHash, "");
  EXPECT_EQ(scene.status().lastFailure->action, "RecreatePod");
  const auto pods = only<CreatePod>(scene.plan());
  ASSERT_EQ(pods.size(), 1u);
  EXPECT_EQ(pods[0].name, "job-worker-1-2");
  scene.add_pod(1, 2).created_in_round = 1;
  scene.settle();
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_FALSE(scene.status().worldHash.empty());
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 2u);
}

TEST(FailurePolicy, AnExitCodeThatIsNoneIsUnknown) {
  Scene scene(1);
  scene.train();
  scene.seen.pods[0].phase = "Failed";
  scene.seen.pods[0].exit_code = -7;
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->exitCode, -1);
}

TEST(FailurePolicy, ALostPodIsNamedByItsNodeBecauseNoRankIsToBlame) {
  Scene scene(2);
  scene.train();
  scene.seen.pods[1].terminating = true;
  const Plan plan = scene.plan();
  ASSERT_EQ(only<EmitEvent>(plan).size(), 1u);
  EXPECT_EQ(only<EmitEvent>(plan)[0].message,
            "the pod of node index 1 on machine-1 failed in round 1: PodDeleted");
  EXPECT_EQ(written(scene, plan).lastFailure->rank, -1);
  EXPECT_EQ(written(scene, plan).lastFailure->nodeIndex, 1);
}

TEST(FailurePolicy, PodsOfOneFailureAreCountedOnceAndNewOnesAgain) {
  Scene scene(3);
  scene.train();
  scene.seen.pods[0].terminating = true;
  scene.settle();
  ASSERT_EQ(scene.status().restarts, 1);
  scene.seen.pods[1].terminating = true;  // in the same round, seen a little later
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().members, "2,2,1");
  PodView& second = scene.add_pod(0, 2);  // and a pod that was created since then
  second.created_in_round = 1;
  second.phase = "Failed";
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 2);
  EXPECT_EQ(scene.status().members, "3,2,1");
  EXPECT_EQ(scene.status().lastFailure->attempt, 2);
}

TEST(FailurePolicy, AClockThatIsAheadOfTheServersGivesNoPodUpAtBirth) {
  Scene scene(1);
  scene.seen.job.spec.failure.pendingTimeoutSeconds = 5;
  scene.settle();
  PodView& pod = scene.add_pod(0);
  pod.phase = "Pending";
  pod.created_at = scene.seen.wall_now - seconds(600);
  pod.seen_at = scene.now;
  EXPECT_EQ(written(scene, scene.plan()).restarts, 0);
  EXPECT_EQ(scene.plan().requeue_at, scene.now + seconds(5));
  scene.advance(seconds(5));
  EXPECT_EQ(written(scene, scene.plan()).restarts, 1);
  scene.seen.pods[0].created_at = scene.seen.wall_now + seconds(1);
  EXPECT_EQ(written(scene, scene.plan()).restarts, 0)
      << "the controller's clock alone does not decide";
}

TEST(FailurePolicy, APodOfWhichNobodyKnowsWhenItWasMadeCounts) {
  Scene scene(1);
  scene.seen.job.spec.failure.maxRestarts = 3;
  scene.train();
  scene.seen.pods[0].terminating = true;
  scene.settle();
  for (int64_t restarts = 1; restarts < 3; ++restarts) {
    ASSERT_EQ(scene.status().restarts, restarts);
    EXPECT_EQ(scene.status().lastFailure->attempt, restarts);
    PodView& pod = scene.add_pod(0, restarts + 1);
    pod.created_in_round.reset();
    pod.phase = "Failed";
    scene.settle();
  }
  EXPECT_EQ(scene.status().restarts, 3);
}

TEST(FailurePolicy, FailsTheJobWhereARestartIsNotAllowedOrCannotHelp) {
  struct Case {
    int64_t exit_code;
    int64_t restarts;
    const char* reason;  // of the Failed condition; nullptr: the job restarts
  };
  const Case cases[] = {
      {1, 1, nullptr},
      {1, 2, "TooManyRestarts"},
      {kExitBadConfig, 0, "NotRetryable"},
      {kExitDataError, 0, "NotRetryable"},
      {kExitNotFinite, 0, "NotRetryable"},
      {kExitFenced, 0, "NotRetryable"},
      {kExitPortTaken, 0, nullptr},
      {kExitStorageError, 0, nullptr},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE("exit code " + std::to_string(test.exit_code));
    Scene scene(2);
    scene.seen.job.spec.failure.maxRestarts = 2;
    scene.train();
    scene.status().restarts = test.restarts;
    scene.fail_worker(1, test.exit_code, 1);
    const TrainingJobStatus status = written(scene, scene.plan());
    if (test.reason == nullptr) {
      EXPECT_EQ(status.restarts, test.restarts + 1);
      EXPECT_FALSE(is_true(status, kFailed));
      continue;
    }
    EXPECT_EQ(status.restarts, test.restarts);
    ASSERT_TRUE(is_true(status, kFailed));
    EXPECT_EQ(condition(status, kFailed).reason, test.reason);
    const std::string& message = condition(status, kFailed).message;
    EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
    EXPECT_NE(message.find("exit code " + std::to_string(test.exit_code)), std::string::npos);
    EXPECT_NE(message.find("the end of rank 1"), std::string::npos) << message;
    EXPECT_EQ(status.lastFailure->action, "Fail");
    EXPECT_EQ(status.state, "Failed");
    EXPECT_FALSE(status.completionTime.empty());
  }
}

TEST(FailurePolicy, SaysThatAnotherJobOwnsTheCheckpointFolder) {
  Scene scene(2);
  scene.seen.job.spec.checkpoint.path = "/checkpoints/gpt";
  scene.train();
  scene.fail_worker(1, kExitPeerLost, 1);
  scene.fail_worker(0, kExitFenced, 0);
  const TrainingJobStatus status = written(scene, scene.plan());
  ASSERT_TRUE(is_true(status, kFailed));
  const std::string& message = condition(status, kFailed).message;
  EXPECT_NE(message.find("rank 0 of node index 0"), std::string::npos) << message;
  EXPECT_NE(message.find("spec.checkpoint.path: another job, or a newer round of this one, owns "
                         "/checkpoints/gpt; give each job its own folder"),
            std::string::npos)
      << message;
}

TEST(FailurePolicy, MakesThePodAnewWhoseGpuIsNotThere) {
  for (const bool has_rule : {false, true}) {
    Scene scene(2);
    if (has_rule) {
      scene.seen.job.spec.failure.rules = {
          {.exitCodes = {kExitNoDevice}, .action = "RestartInPlace"}};
    }
    scene.train();
    scene.fail_worker(1, kExitNoDevice, 1);
    const TrainingJobStatus status = written(scene, scene.plan());
    ASSERT_TRUE(status.lastFailure);
    EXPECT_EQ(status.lastFailure->action, has_rule ? "RestartInPlace" : "RecreatePod");
    EXPECT_EQ(status.members, has_rule ? "1,1" : "1,2");
    EXPECT_NE(status.lastFailure->message.find("the end of rank 1"), std::string::npos);
    EXPECT_EQ(status.lastFailure->exitCode, kExitNoDevice);
  }
}

TEST(FailurePolicy, ASilentAgentsFailureSaysWhatCameOfAskingIt) {
  Scene scene(1);
  scene.train();
  scene.advance(scene.limits.agent_silence);
  scene.seen.agents["job-worker-0-1-uid"].error = "connecting to 10.0.0.1:9470: timed out";
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->reason, "AgentSilent");
  EXPECT_EQ(scene.status().lastFailure->message, "connecting to 10.0.0.1:9470: timed out");
}

// A controller that has just begun to lead asks in vain. Rank 0 has waited for rank 1 for longer.
TEST(FailurePolicy, AnAgentThatWasNeverHeardIsSilentForAsLongAsOthersMissItsRanks) {
  struct Case {
    const char* what;
    std::function<void(WorkerState&)> say;
  };
  const Case cases[] = {
      {"it waits",
       [](WorkerState& worker) { worker.wait = WorkerWait{.waits_for = {1}, .seconds = 20}; }},
      {"it has lost it", [](WorkerState& worker) {
         worker.running = false;
         worker.exit_code = kExitPeerLost;
         worker.reason = "Error";
         worker.suspect_rank = 1;
         worker.failed_seconds_ago = 20;
       }}};
  for (const Case& row : cases) {
    SCOPED_TRACE(row.what);
    Scene scene(2);
    scene.train();
    row.say(scene.agent(0).workers[0]);
    AgentView& silent = scene.seen.agents["job-worker-1-1-uid"];
    silent.state = nullptr;
    scene.advance(seconds(1));
    scene.settle();
    EXPECT_FALSE(scene.status().lastFailure.has_value()) << "it was not asked yet";
    silent.error = "connecting to 10.0.0.2:9470: timed out";
    EXPECT_EQ(scene.plan().requeue_at, scene.now + scene.limits.agent_asked_min - seconds(1));
    scene.advance(scene.limits.agent_asked_min - seconds(1));
    scene.settle();
    ASSERT_TRUE(scene.status().lastFailure.has_value());
    EXPECT_EQ(scene.status().lastFailure->reason, "AgentSilent");
    EXPECT_EQ(scene.status().members, "1,2");
    EXPECT_NEAR(scene.status().lastFailure->recovery.detectSeconds.value_or(0), 25, 0.01);
  }
}

TEST(FailurePolicy, AnAgentThatWasHeardIsSilentSinceThen) {
  Scene scene(2);
  scene.train();
  scene.agent(0).workers[0].wait = WorkerWait{.waits_for = {1}, .seconds = 20};
  scene.seen.agents["job-worker-1-1-uid"].error = "connecting to 10.0.0.2:9470: timed out";
  scene.advance(scene.limits.agent_silence - seconds(1));
  scene.seen.agents["job-worker-0-1-uid"].last_heard = scene.now;
  scene.settle();
  EXPECT_FALSE(scene.status().lastFailure.has_value());
}

// The power of node 1 is cut: its peers notice after five seconds, its silence counts ten seconds
// later.
struct PowerCut {
  PowerCut() {
    scene.train();
    pass(seconds(5));
    for (const int64_t i : {0, 2}) {
      scene.fail_worker(i, kExitPeerLost, 1);
      scene.agent(i).workers[0].suspect_rank = 1;
    }
    pass(scene.limits.culprit_wait);
  }

  // Time passes; all agents are heard but those of `silent` nodes.
  void pass(Duration time, const std::set<int64_t>& silent = {1}) {
    scene.advance(time);
    for (auto& [uid, view] : scene.seen.agents) {
      const bool is_silent = std::ranges::any_of(silent, [&uid = uid](int64_t node) {
        return uid == "job-worker-" + std::to_string(node) + "-1-uid";
      });
      if (!is_silent) view.last_heard = scene.now;
    }
    scene.settle();
  }

  Scene scene{3};
};

TEST(FailurePolicy, OneCutOfThePowerIsOneRestart) {
  PowerCut cut;
  EXPECT_EQ(cut.scene.status().lastFailure->reason, "Suspected");
  EXPECT_EQ(cut.scene.status().restarts, 1);
  cut.pass(seconds(20));
  EXPECT_EQ(cut.scene.status().lastFailure->reason, "AgentSilent");
  EXPECT_EQ(cut.scene.status().members, "1,2,1");
  EXPECT_EQ(cut.scene.status().restarts, 1) << "the same cut";
  EXPECT_EQ(cut.scene.status().lastFailure->attempt, 1);
}

// A controller that starts in the middle of it has not heard the node, and cannot know since when.
TEST(FailurePolicy, OneCutOfThePowerIsOneRestartForTheNextControllerToo) {
  for (const bool is_new : {false, true}) {
    PowerCut cut;
    cut.scene.seen.pods[1].created_in_round = is_new ? 1 : 0;
    cut.pass(seconds(1));
    cut.scene.seen.agents["job-worker-1-1-uid"] = {.last_heard = cut.scene.now};
    cut.pass(seconds(20));
    EXPECT_EQ(cut.scene.status().lastFailure->reason, "AgentSilent");
    EXPECT_EQ(cut.scene.status().restarts, is_new ? 2 : 1)
        << condition(cut.scene.status(), kRestarting).message;
  }
}

// The request would keep the job from being planned until the silence is long over.
TEST(FailurePolicy, AnAgentThatDoesNotAnswerIsNotSentItsAssignmentUntilItIsHeard) {
  PowerCut cut;
  const Plan plan = cut.scene.plan();
  ASSERT_EQ(only<PutAssignment>(plan).size(), 2u) << plan.why;
  for (const PutAssignment& put : only<PutAssignment>(plan)) EXPECT_NE(put.node_index, 1);
  ASSERT_TRUE(plan.requeue_at);
  EXPECT_LE(*plan.requeue_at, cut.scene.now + seconds(1));
  cut.scene.seen.agents["job-worker-1-1-uid"].last_heard = cut.scene.now;
  EXPECT_EQ(only<PutAssignment>(cut.scene.plan()).size(), 3u);
}

// Ranks of the next rounds miss the node too.
TEST(FailurePolicy, OneCutOfThePowerIsOneRestartHoweverOftenPeersReportIt) {
  PowerCut cut;
  cut.scene.limits.agent_silence = seconds(60);
  for (int round = 2; round <= 3; ++round) {
    for (const int64_t i : {0, 2}) {
      cut.scene.add_agent(i);
      cut.scene.fail_worker(i, kExitPeerLost, 1);
      cut.scene.agent(i).workers[0].suspect_rank = 1;
    }
    cut.pass(cut.scene.limits.culprit_wait / 5);
    cut.pass(cut.scene.limits.culprit_wait);
    EXPECT_EQ(cut.scene.status().restarts, 1);
    EXPECT_EQ(cut.scene.status().lastFailure->number, round);
  }
  cut.pass(seconds(60));
  EXPECT_EQ(cut.scene.status().lastFailure->reason, "AgentSilent");
  EXPECT_EQ(cut.scene.status().members, "1,2,1");
  EXPECT_EQ(cut.scene.status().restarts, 1);
}

// A round that a user ends in between had no failure of its own.
TEST(FailurePolicy, OneCutOfThePowerIsOneRestartIfTheJobIsScaledMeanwhile) {
  PowerCut cut;
  cut.scene.seen.job.spec.nodes = 2;
  ++cut.scene.seen.job.metadata.generation;
  cut.pass(seconds(1));
  cut.scene.seen.pods.resize(2);
  cut.pass(seconds(1));
  EXPECT_EQ(cut.scene.status().members, "1,1");
  EXPECT_EQ(cut.scene.status().round, 3);
  cut.pass(seconds(20));
  EXPECT_EQ(cut.scene.status().lastFailure->reason, "AgentSilent");
  EXPECT_EQ(cut.scene.status().members, "1,2");
  EXPECT_EQ(cut.scene.status().restarts, 1);
}

TEST(FailurePolicy, AnAgentThatWasHeardSinceTheLastFailureIsAnother) {
  PowerCut cut;
  cut.pass(seconds(1), {});
  cut.pass(seconds(20));
  EXPECT_EQ(cut.scene.status().lastFailure->reason, "AgentSilent");
  EXPECT_EQ(cut.scene.status().restarts, 2);
}

// By the new time, all agents were last heard before the first failure.
TEST(FailurePolicy, AFailureAfterTheClockWasSetBackIsAnother) {
  PowerCut cut;
  for (const int64_t i : {0, 1, 2}) cut.scene.add_agent(i);
  cut.pass(seconds(1), {});
  EXPECT_TRUE(is_true(cut.scene.status(), kRunning));
  cut.scene.seen.wall_now -= std::chrono::minutes(5);
  for (const int64_t i : {0, 2}) {
    cut.scene.fail_worker(i, kExitPeerLost, 1);
    cut.scene.agent(i).workers[0].suspect_rank = 1;
  }
  cut.pass(cut.scene.limits.culprit_wait, {});
  EXPECT_EQ(cut.scene.status().lastFailure->number, 2);
  EXPECT_EQ(cut.scene.status().restarts, 2);
}

TEST(FailurePolicy, APodWhoseAgentRefusesTheTokenStaysAndTheStatusSaysWhatToDo) {
  Scene scene(2);
  scene.train();
  AgentView& view = scene.seen.agents["job-worker-1-1-uid"];
  view.refuses_token = true;
  for (int i = 0; i < 10; ++i) {
    scene.advance(seconds(30));
    for (auto& [uid, agent] : scene.seen.agents) agent.last_heard = scene.now;
    scene.settle();
  }
  EXPECT_EQ(scene.status().members, "1,1");
  EXPECT_EQ(condition(scene.status(), kReady).reason, "AgentRefusesToken");
  const std::string& message = condition(scene.status(), kReady).message;
  EXPECT_NE(message.find(token_secret_name(scene.seen.job.metadata)), std::string::npos) << message;
  scene.seen.agents["job-worker-1-1-uid"].refuses_token = false;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kReady));
}

// Its refusal of the assignment would end each plan before the status is written.
TEST(FailurePolicy, AnAgentThatRefusesTheTokenFromTheStartIsNotSentItsAssignment) {
  Scene scene(2);
  scene.form();
  scene.seen.agents["job-worker-1-1-uid"].refuses_token = true;
  scene.seen.agents["job-worker-1-1-uid"].last_heard = scene.now;
  const std::vector<PutAssignment> sent = only<PutAssignment>(scene.plan());
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].target.pod_name, "job-worker-0-1");
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kReady).reason, "AgentRefusesToken");
}

TEST(FailurePolicy, WhenMostAgentsAreSilentTheControllerSuspectsItselfFirst) {
  Scene scene(2);
  scene.train();
  scene.advance(seconds(40));
  scene.seen.suspect_own_network = true;
  EXPECT_EQ(written(scene, scene.plan()).restarts, 0);
  EXPECT_EQ(scene.plan().requeue_at, scene.now + scene.limits.suspicion_recheck)
      << "the suspicion may end long before the silence limit";
  scene.advance(seconds(300));
  EXPECT_EQ(written(scene, scene.plan()).members, "2,2");
}

TEST(FailurePolicy, AmongVeryManyAgentsEachMayBeSilentForLonger) {
  Scene scene(2);
  scene.train();
  scene.seen.agent_silence = seconds(90);
  scene.advance(seconds(89));
  EXPECT_EQ(written(scene, scene.plan()).restarts, 0);
  EXPECT_EQ(scene.plan().requeue_at, scene.now + seconds(1));
  scene.seen.suspect_own_network = true;
  scene.advance(seconds(270));
  EXPECT_EQ(written(scene, scene.plan()).restarts, 0) << "the silence limit is four times as long";
  scene.seen.suspect_own_network = false;
  EXPECT_EQ(written(scene, scene.plan()).members, "2,2");
}

TEST(FailurePolicy, AmongVeryManyAgentsARankMayHangWhoseAgentWasNotHeardForLonger) {
  Scene scene(2);
  scene.train();
  scene.advance(seconds(40));
  scene.fail_worker(0, kExitPeerHung, 10);
  scene.agent(0).workers[0].suspect_rank = 1;
  scene.seen.agent_silence = seconds(90);
  const TrainingJobStatus status = written(scene, scene.plan());
  ASSERT_TRUE(status.lastFailure);
  EXPECT_EQ(status.lastFailure->reason, "Hang");
}

}  // namespace
}  // namespace lockstep::plan
