// A pod of a round is deleted, drained or preempted: the ranks save and leave before the next one.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/api/worker_config.h"
#include "controller/plan/draining.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;

constexpr seconds kGrace(35);  // of the pods

// A job of `nodes` nodes that trains, with a folder for checkpoints.
struct Drain : Scene {
  explicit Drain(int64_t nodes = 2) : Scene(nodes) {
    seen.job.spec.checkpoint.path = "/ckpt";
    train();
  }
  PodView& pod(int64_t index) { return seen.pods[static_cast<size_t>(index)]; }
  AgentView& view(int64_t index) { return seen.agents[pod(index).uid]; }
  // Somebody deletes the pod.
  void remove(int64_t index, const char* disruption = "") {
    pod(index).terminating = true;
    pod(index).gone_by = seen.wall_now + kGrace;
    pod(index).disruption = disruption;
    agent(index).phase = "Stopping";
  }
  // Somebody deletes the pod, and the status says that the round drains.
  void drain(int64_t index, const char* disruption = "") {
    remove(index, disruption);
    settle();
  }
  // The node's ranks have saved step 37. A rank whose own pod goes on looks failed to its agent.
  void leave(int64_t index) {
    const bool is_stopping = agent(index).phase == "Stopping";
    for (WorkerState& worker : agent(index).workers) {
      worker.running = false;
      worker.exit_code = kExitStopped;
      worker.reason = is_stopping ? "Stopped" : "Error";
      worker.step = 37;
    }
    if (!is_stopping) agent(index).phase = "Failed";
  }
  void leave_all() {
    for (int64_t index = 0; index < std::ssize(seen.pods); ++index) leave(index);
  }
  // The pod's object is gone, and a read from the server confirms it.
  void vanish(int64_t index) {
    const auto at = seen.pods.begin() + index;
    seen.agents.erase(at->uid);
    seen.absent_pods.insert(at->name);
    seen.pods.erase(at);
  }
  // The node's agent has not answered for too long.
  void silence(int64_t index) { view(index).last_heard = now - limits.agent_healthy_within; }
  // All agents answer after this time.
  void hear_after(Duration time) {
    advance(time);
    for (auto& [uid, view] : seen.agents) view.last_heard = now;
  }
  bool has_failure() { return status().lastFailure.has_value(); }
};

std::vector<std::string> watched(const Plan& plan) {
  std::vector<std::string> names;
  for (const AgentTarget& target : plan.watch) names.push_back(target.pod_name);
  return names;
}

TEST(Draining, BeginsWhenAPodOfTheRoundIsStopped) {
  Drain scene;
  const TrainingJobStatus before = scene.status();
  scene.remove(1, "PreemptionByScheduler");
  const Plan plan = scene.plan();
  EXPECT_TRUE(is_decision(plan)) << plan.why;
  EXPECT_EQ(watched(plan), (std::vector<std::string>{"job-worker-0-1", "job-worker-1-1"}));
  ASSERT_EQ(only<EmitEvent>(plan).size(), 1u);
  EXPECT_FALSE(only<EmitEvent>(plan)[0].warning);
  scene.settle();
  const Condition& draining = condition(scene.status(), kDraining);
  EXPECT_EQ(draining.status, "True");
  EXPECT_EQ(draining.message,
            "the pod of node index 1 on machine-1 is being stopped: Preempted; the ranks save a "
            "checkpoint and leave");
  EXPECT_EQ(scene.status().worldHash, before.worldHash);
  EXPECT_EQ(scene.status().members, before.members);
  EXPECT_EQ(scene.status().state, "Running");
  EXPECT_FALSE(scene.has_failure());
}

TEST(Draining, BeginsWithTheDeletionOfAPodThatWillBePreempted) {
  Drain scene;
  scene.pod(1).is_warned = true;
  const std::vector<DeletePod> deleted = only<DeletePod>(scene.plan());
  ASSERT_EQ(deleted.size(), 1u);
  EXPECT_EQ(deleted[0].name, scene.pod(1).name);
  EXPECT_EQ(deleted[0].uid, scene.pod(1).uid);
  EXPECT_EQ(deleted[0].grace_seconds, kGrace.count());
  scene.drain(1);
  EXPECT_EQ(condition(scene.status(), kDraining).message,
            "the pod of node index 1 on machine-1 is being stopped: Preempted; the ranks save a "
            "checkpoint and leave");
  EXPECT_TRUE(only<DeletePod>(scene.plan()).empty());
  scene.leave_all();
  scene.settle();
  EXPECT_FALSE(scene.has_failure());
}

TEST(Draining, NothingIsDoneWhileRanksRunAndTheirTimeIsNotOver) {
  Drain scene;
  scene.drain(1);
  const TimePoint end = scene.now + kGrace;
  scene.agent(0).workers[0].phase = WorkerPhase::kSaving;
  Plan plan = scene.plan();
  EXPECT_TRUE(plan.actions.empty()) << plan.why;
  EXPECT_EQ(plan.requeue_at, scene.now + scene.limits.agent_healthy_within) << "silence ends it";
  scene.leave(1);
  scene.hear_after(kGrace - seconds(1));
  plan = scene.plan();
  EXPECT_TRUE(plan.actions.empty()) << plan.why;
  EXPECT_EQ(plan.requeue_at, end) << "no pod gets more time than that";
  scene.hear_after(seconds(1));
  scene.settle();
  EXPECT_TRUE(scene.has_failure());
}

TEST(Draining, WakesUpWhenThePodsTimeIsOver) {
  Drain scene;
  scene.remove(1);
  scene.pod(1).gone_by = scene.seen.wall_now + seconds(3);  // kubectl delete --grace-period=3
  scene.settle();
  EXPECT_EQ(scene.plan().requeue_at, scene.now + seconds(3));
  scene.hear_after(seconds(3));
  scene.pod(1).phase = "Failed";
  scene.pod(1).exit_code = 137;
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->reason, "PodDeleted");
  EXPECT_EQ(condition(scene.status(), kDraining).reason, "RoundEnded");
}

TEST(Draining, OnceAllRanksHaveLeftAnotherPodTakesThePlaceAndNothingFailed) {
  Drain scene;
  scene.drain(1, "EvictionByEvictionAPI");
  scene.leave(1);
  scene.leave(0);
  scene.pod(1).phase = "Failed";
  scene.pod(1).exit_code = kExitStopped;
  scene.advance(seconds(2));
  EXPECT_TRUE(is_decision(scene.plan())) << scene.plan().why;
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,2");
  EXPECT_EQ(scene.status().worldHash, "");
  EXPECT_EQ(scene.status().restarts, 0);
  EXPECT_FALSE(scene.has_failure());
  EXPECT_TRUE(scene.status().failures.empty());
  EXPECT_EQ(scene.status().state, "Restarting");
  EXPECT_EQ(condition(scene.status(), kDraining).reason, "Saved");
  EXPECT_EQ(condition(scene.status(), kRunning).reason, kDrained);
  EXPECT_EQ(condition(scene.status(), kRestarting).message,
            "the pod of node index 1 on machine-1 is being stopped: Evicted; the ranks saved "
            "a checkpoint and left at step 37");

  ASSERT_EQ(only<CreatePod>(scene.plan()).size(), 1u);
  EXPECT_EQ(only<CreatePod>(scene.plan())[0].name, "job-worker-1-2");
  scene.add_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 2u) << "without backing off";
  scene.advance(seconds(3));
  for (int64_t i = 0; i < 2; ++i) scene.add_agent(i);
  scene.settle();
  EXPECT_EQ(scene.status().state, "Running");
  EXPECT_EQ(scene.status().lost.seconds, 3) << "goodput counts it";
  EXPECT_EQ(scene.status().lost.steps, 0);
  EXPECT_EQ(scene.status().trainedSeconds, 2);
  EXPECT_FALSE(scene.has_failure());
}

TEST(Draining, SeveralPodsAtOnceAreReplacedTogether) {
  Drain scene(3);
  scene.remove(0);
  scene.drain(2);
  scene.leave_all();
  scene.settle();
  EXPECT_EQ(scene.status().members, "2,1,2");
  EXPECT_EQ(scene.status().restarts, 0);
}

TEST(Draining, AnOldPodThatIsStoppedBeforeTheNextRoundIsReplacedToo) {
  Drain scene(3);
  scene.status().round = 4;
  for (int64_t i = 0; i < 3; ++i) scene.add_agent(i);
  scene.drain(0);
  scene.leave_all();
  scene.settle();
  scene.pod(1).created_in_round = 3;
  scene.pod(1).terminating = true;
  scene.settle();
  EXPECT_EQ(scene.status().members, "2,2,1");
  EXPECT_FALSE(scene.has_failure()) << "its ranks had left";
  PodView& successor = scene.add_pod(1, 2);
  successor.created_in_round = 4;
  successor.terminating = true;
  scene.settle();
  EXPECT_TRUE(scene.has_failure()) << "pods can't be made anew without end";
}

TEST(Draining, APodThatIsGoneIsNotAwaitedButTheRanksThatStillSaveAre) {
  Drain scene;
  scene.drain(1);
  scene.leave(1);
  scene.vanish(1);
  scene.agent(0).workers[0].phase = WorkerPhase::kSaving;
  scene.settle();
  EXPECT_TRUE(scene.plan().actions.empty()) << scene.plan().why;
  scene.leave(0);
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,2");
  EXPECT_FALSE(scene.has_failure());
}

TEST(Draining, APodThatTheCacheLacksIsConfirmedFirst) {
  Drain scene;
  scene.drain(1);
  scene.leave(0);
  scene.vanish(1);
  scene.seen.absent_pods.clear();
  const Plan plan = scene.plan();
  ASSERT_EQ(only<ConfirmPod>(plan).size(), 1u) << plan.why;
  EXPECT_EQ(only<ConfirmPod>(plan)[0].name, "job-worker-1-1");
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,1");
}

TEST(Draining, APodWhoseAgentStopsWithoutADeletionIsDrained) {
  Drain scene;
  scene.agent(1).phase = "Stopping";  // the machine shuts down
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kDraining));
  scene.leave(0);
  scene.seen.agents.erase(scene.pod(1).uid);
  scene.pod(1).phase = "Failed";
  scene.pod(1).exit_code = kExitStopped;
  scene.pod(1).reason = "NodeShutdown";
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,2");
  EXPECT_FALSE(scene.has_failure());
}

TEST(Draining, AControllerThatStartsMeanwhileListensAndGoesOnWaiting) {
  Drain scene;
  scene.drain(1);
  const auto agents = std::exchange(scene.seen.agents, {});
  const Plan plan = scene.plan();
  EXPECT_TRUE(plan.actions.empty()) << plan.why;
  EXPECT_EQ(watched(plan).size(), 2u);
  scene.seen.agents = agents;
  scene.leave_all();
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,2");
  EXPECT_FALSE(scene.has_failure());
}

TEST(Draining, ARankOfANodeThatHasLeftWaitsForItsNeighbours) {
  Drain scene;
  scene.drain(1);
  scene.leave(0);
  WorkerState second = scene.agent(0).workers[0];
  second.running = true;
  second.exit_code = 0;
  second.phase = WorkerPhase::kSaving;
  scene.agent(0).workers.push_back(second);
  scene.leave(1);
  EXPECT_TRUE(scene.plan().actions.empty()) << scene.plan().why;
}

struct Case {
  std::string name;
  std::function<void(Drain&)> change;
  std::string reason;  // of the failure
};

// The failure policy decides at once.
TEST(Draining, WhatCannotSaveIsNotWaitedFor) {
  const std::vector<Case> cases = {
      {"no folder",
       [](Drain& scene) {
         scene.seen.job.spec.checkpoint.path = "";
         scene.status().fixed.clear();
       },
       "PodDeleted"},
      {"a rank has not trained yet",
       [](Drain& scene) { scene.agent(0).workers[0].phase = WorkerPhase::kBroadcasting; },
       "PodDeleted"},
      {"a rank failed", [](Drain& scene) { scene.fail_worker(0, kExitStorageError, 0.1); },
       "PodDeleted"},
      {"a rank was killed", [](Drain& scene) { scene.fail_worker(1, 137, 0.1, "Signal"); },
       "PodDeleted"},
      {"SIGTERM killed a rank",
       [](Drain& scene) {
         scene.leave(1);
         scene.agent(1).workers[0].signal = 15;
       },
       "PodDeleted"},
      {"its agent kills the ranks", [](Drain& scene) { scene.agent(1).phase = "Exiting"; },
       "PodDeleted"},
      {"its agent is silent", [](Drain& scene) { scene.silence(1); }, "PodDeleted"},
      {"another agent is silent", [](Drain& scene) { scene.silence(0); }, "PodDeleted"},
      {"its machine does not report it",
       [](Drain& scene) {
         scene.seen.agents.erase(scene.pod(1).uid);
         scene.pod(1).phase = "Unknown";
       },
       "PodDeleted"},
      {"an agent runs an older round", [](Drain& scene) { scene.agent(0).round = 0; },
       "PodDeleted"},
      {"its time is over", [](Drain& scene) { scene.pod(1).gone_by = scene.seen.wall_now; },
       "PodDeleted"},
      {"its time is unknown", [](Drain& scene) { scene.pod(1).gone_by.reset(); }, "PodDeleted"},
      {"the container has ended otherwise", [](Drain& scene) { scene.pod(1).exit_code = 137; },
       "PodDeleted"},
      {"nobody knows whether they saved",
       [](Drain& scene) {
         scene.vanish(1);
         scene.fail_worker(0, kExitPeerLost, 0.1);
       },
       "PodLost"},
      {"it is gone, and nobody was asked to stop", [](Drain& scene) { scene.vanish(1); },
       "PodLost"}};
  for (const Case& one : cases) {
    Drain scene;
    scene.remove(1);
    one.change(scene);
    scene.settle();
    ASSERT_TRUE(scene.has_failure()) << one.name;
    EXPECT_EQ(scene.status().lastFailure->reason, one.reason) << one.name;
    EXPECT_EQ(scene.status().restarts, 1) << one.name;
    EXPECT_EQ(find_condition(scene.status(), kDraining), nullptr) << one.name;
  }
}

TEST(Draining, IfThePodOfRankZeroIsGoneTheStatusTellsWhetherItSaved) {
  for (const int64_t saved : {0, 36, 37}) {
    Drain scene;
    scene.drain(0);
    scene.status().lastCheckpoint = CheckpointStatus{.step = saved, .path = "/ckpt/step"};
    scene.leave(1);
    scene.vanish(0);
    scene.settle();
    EXPECT_EQ(scene.has_failure(), saved < 37) << saved;
    EXPECT_EQ(scene.status().members, "2,1");
  }
}

TEST(Draining, TheLastReportOfRankZeroIsKeptThoughItsPodIsGone) {
  Drain scene;
  scene.drain(0);
  scene.leave(0);
  scene.agent(0).incarnation = 1;
  scene.agent(0).last_checkpoint = CheckpointStatus{.step = 37, .path = "/ckpt/step"};
  const PodView pod = scene.pod(0);
  const AgentView last = scene.view(0);
  scene.vanish(0);
  scene.seen.agents[pod.uid] = last;
  scene.seen.may_write_progress = false;
  scene.settle();
  ASSERT_TRUE(scene.status().lastCheckpoint) << "it is written at once";
  EXPECT_EQ(scene.status().lastCheckpoint->step, 37);
  scene.seen.agents.erase(pod.uid);
  scene.leave(1);
  scene.settle();
  EXPECT_EQ(scene.status().members, "2,1");
  EXPECT_FALSE(scene.has_failure());
}

TEST(Draining, IfItsPodIsGoneAndNobodyKnowsWhetherItSavedThePodIsLost) {
  Drain scene;
  scene.drain(0);
  scene.leave(1);
  scene.vanish(0);
  scene.seen.absent_pods.clear();
  EXPECT_EQ(only<ConfirmPod>(scene.plan()).size(), 1u) << scene.plan().why;
  scene.seen.absent_pods.insert("job-worker-0-1");
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->reason, "PodLost");
  EXPECT_EQ(scene.status().members, "2,1");
}

TEST(Draining, ARankThatLeftIsNotBlamedWhileThePodOfAnotherIsUnseen) {
  Drain scene(3);
  scene.leave(1);
  scene.fail_worker(2, kExitPeerLost, 0.1);
  scene.vanish(0);
  scene.seen.absent_pods.clear();
  EXPECT_EQ(only<ConfirmPod>(scene.plan()).size(), 1u) << scene.plan().why;
  scene.settle();
  EXPECT_FALSE(scene.has_failure());
}

// Its agent may be silent because its machine is being stopped.
TEST(Draining, ARankThatLeftIsNotBlamedWhileTheAgentOfAnotherIsSilent) {
  Drain scene;
  scene.leave(0);
  scene.agent(0).workers[0].failed_seconds_ago = 1;
  const TimePoint heard = scene.view(1).last_heard;
  scene.advance(seconds(10));
  scene.view(0).last_heard = scene.now;
  scene.settle();
  EXPECT_FALSE(scene.has_failure());
  const Plan plan = scene.plan();
  ASSERT_TRUE(plan.requeue_at.has_value()) << plan.why;
  EXPECT_LE(*plan.requeue_at, heard + scene.limits.agent_silence);
  scene.advance(seconds(6));
  scene.view(0).last_heard = scene.now;
  scene.settle();
  ASSERT_TRUE(scene.has_failure());
  EXPECT_EQ(scene.status().lastFailure->reason, "AgentSilent");
}

TEST(Draining, OfASingleNodeWhosePodIsGoneNobodyKnowsWhetherItSaved) {
  Drain scene(1);
  scene.drain(0);
  scene.vanish(0);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->reason, "PodLost");
}

TEST(Draining, ACommandIsNotWaitedFor) {
  Scene scene;
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"train"};
  scene.seen.job.spec.checkpoint.path = "/ckpt";
  scene.train();
  scene.seen.pods[1].terminating = true;
  scene.seen.pods[1].gone_by = scene.seen.wall_now + kGrace;
  scene.settle();
  EXPECT_TRUE(scene.status().lastFailure);
}

TEST(Draining, ARankThatFailsMeanwhileEndsTheWait) {
  Drain scene;
  scene.drain(1);
  scene.fail_worker(0, kExitPeerLost, 0.1);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->reason, "PodDeleted");
  EXPECT_EQ(condition(scene.status(), kDraining).reason, "RoundEnded");
}

TEST(Draining, RanksThatLeaveBeforeThePodIsKnownToBeStoppedAreUnderstoodSoonAfter) {
  Drain scene;
  scene.leave(0);
  scene.agent(0).workers[0].failed_seconds_ago = 1;
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kDraining).message,
            "ranks were asked to stop; the ranks save a checkpoint and leave");
  scene.leave(1);
  const TimePoint left_at = scene.now;
  const Plan plan = scene.plan();
  EXPECT_TRUE(plan.actions.empty()) << plan.why;
  EXPECT_EQ(plan.requeue_at, left_at + scene.limits.culprit_wait);
  Drain known = scene;
  known.pod(1).terminating = true;
  known.pod(1).gone_by = known.seen.wall_now + kGrace;
  known.settle();
  EXPECT_EQ(known.status().members, "1,2");
  EXPECT_FALSE(known.has_failure());
  scene.hear_after(scene.limits.culprit_wait);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->exitCode, kExitStopped) << "somebody stopped the processes";
  EXPECT_EQ(scene.status().members, "1,1");
}

TEST(Draining, ARuleOfTheJobDecidesOnceTheRanksHaveLeft) {
  for (const auto& [action, restarts] :
       std::vector<std::pair<std::string, int64_t>>{{"Ignore", 0}, {"RecreatePod", 1}}) {
    Drain scene;
    scene.seen.job.spec.failure.rules = {
        {.exitCodes = {}, .event = "Preempted", .action = action, .after = ""}};
    scene.drain(1, "PreemptionByScheduler");
    EXPECT_FALSE(scene.has_failure());
    scene.leave_all();
    scene.settle();
    EXPECT_EQ(scene.status().lastFailure->reason, "Preempted");
    EXPECT_EQ(scene.status().restarts, restarts);
    EXPECT_EQ(condition(scene.status(), kDraining).reason, "RoundEnded");
  }
}

TEST(Draining, RanksThatFinishMeanwhileCompleteTheJob) {
  Drain scene;
  scene.drain(1);
  const auto complete = [&](int64_t index) {
    scene.agent(index).workers[0].running = false;
    scene.agent(index).workers[0].reason = "Completed";
  };
  complete(1);
  EXPECT_TRUE(scene.plan().actions.empty()) << scene.plan().why;
  complete(0);
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kComplete));
  EXPECT_EQ(condition(scene.status(), kDraining).reason, "RoundEnded");
}

TEST(Draining, ASuspensionEndsIt) {
  Drain scene;
  scene.drain(1);
  scene.seen.job.spec.suspend = true;
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kDraining).reason, "RoundEnded");
  EXPECT_FALSE(scene.has_failure());
}

}  // namespace
}  // namespace lockstep::plan
