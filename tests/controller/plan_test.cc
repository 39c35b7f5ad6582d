#include "controller/plan/plan.h"

#include <gtest/gtest.h>

#include "controller/plan/members.h"
#include "controller/plan/names.h"
#include "tests/controller/scene.h"

namespace lockstep {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

TEST(Membership, ANewJobGetsItsMembersBeforeAnyPod) {
  Scene scene(3);
  const Plan plan = scene.plan();
  EXPECT_TRUE(is_decision(plan)) << plan.why;
  const TrainingJobStatus status = written(scene, plan);
  EXPECT_EQ(status.members, "1,1,1");
  EXPECT_EQ(status.round, 0);
  EXPECT_EQ(status.state, "Pending");
  EXPECT_FALSE(status.startTime.empty());
  EXPECT_EQ(status.observedGeneration, 3);
  EXPECT_EQ(only<WriteStatus>(plan).front().resource_version, "7");
}

TEST(Membership, AChangeOfNodesKeepsThoseWhoStayAndEndsTheRound) {
  Scene scene(2);
  scene.train();
  scene.status().members = "4,2";
  scene.seen.job.spec.nodes = 3;
  scene.seen.job.spec.train->batch.global = 192;
  TrainingJobStatus status = written(scene, scene.plan());
  EXPECT_EQ(status.members, "4,2,1");
  EXPECT_EQ(status.worldHash, "");
  scene.seen.job.spec.nodes = 1;
  status = written(scene, scene.plan());
  EXPECT_EQ(status.members, "4");
}

TEST(Membership, ANewMemberIsAboveEveryPodOfItsIndexThatIsStillThere) {
  struct OldPod {
    int64_t index;
    int64_t incarnation;
    const char* phase;
    bool terminating;
  };
  struct Case {
    const char* name;
    std::vector<OldPod> pods;
    const char* members;
  };
  const Case cases[] = {
      {"none is left", {}, "4,1,1"},
      {"one is terminating", {{1, 1, "Running", true}}, "4,2,1"},
      {"one is not being deleted yet", {{2, 3, "Running", false}}, "4,1,4"},
      {"one has ended", {{1, 2, "Succeeded", false}}, "4,3,1"},
      {"several, in any order",
       {{2, 5, "Running", true}, {2, 2, "Failed", true}, {1, 1, "Failed", false}},
       "4,2,6"},
      {"of those who stay and of indices beyond",
       {{0, 9, "Running", true}, {3, 7, "Running", true}},
       "4,1,1"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    Scene scene(3);
    scene.status().members = "4";
    for (const OldPod& old : test.pods) {
      PodView& pod = scene.add_pod(old.index, old.incarnation);
      pod.phase = old.phase;
      pod.terminating = old.terminating;
    }
    EXPECT_EQ(written(scene, scene.plan()).members, test.members);
  }
}

TEST(Members, AreReadAsTheyWereWritten) {
  EXPECT_EQ(members_to_text({1, 20, 3}), "1,20,3");
  EXPECT_EQ(members_from_text("1,20,3"), (std::vector<int64_t>{1, 20, 3}));
  for (const char* text : {"", "x", "1,", ",1", "1,,2", "0", "-1", "1;2", "99999999999999999999"}) {
    EXPECT_TRUE(members_from_text(text).empty()) << text;
  }
}

TEST(Placement, MakesTheSecretAndAPodForEachMember) {
  Scene scene(2);
  scene.settle();
  const Plan plan = scene.plan();
  ASSERT_EQ(only<CreateSecret>(plan).size(), 1u);
  EXPECT_EQ(only<CreateSecret>(plan)[0].body["stringData"]["token"], "token");
  const auto pods = only<CreatePod>(plan);
  ASSERT_EQ(pods.size(), 2u);
  EXPECT_EQ(pods[0].name, "job-worker-0-1");
  EXPECT_EQ(pods[1].name, "job-worker-1-1");
  EXPECT_TRUE(std::holds_alternative<CreateSecret>(plan.actions.front()));
  EXPECT_EQ(written(scene, plan).members, "1,1");
}

TEST(Placement, MakesOnlyWhatIsMissingAndDeletesWhatIsSuperseded) {
  Scene scene(2);
  scene.settle();
  scene.status().members = "1,2";
  scene.add_pod(0);
  scene.add_pod(1, 1);
  scene.add_pod(5, 1);
  const Plan plan = scene.plan();
  ASSERT_EQ(only<CreatePod>(plan).size(), 1u);
  EXPECT_EQ(only<CreatePod>(plan)[0].name, "job-worker-1-2");
  const auto deletes = only<DeletePod>(plan);
  ASSERT_EQ(deletes.size(), 2u);
  EXPECT_EQ(deletes[0].name, "job-worker-1-1");
  EXPECT_EQ(deletes[0].uid, "job-worker-1-1-uid");
  EXPECT_EQ(deletes[0].grace_seconds, 35);
  EXPECT_EQ(deletes[1].name, "job-worker-5-1");
}

TEST(Placement, AfterARefusalOnePodIsSentAloneAndNotBeforeItsTime) {
  Scene scene(3);
  scene.settle();
  scene.seen.refusal = {
      .reason = "QuotaExceeded", .message = "exceeded quota", .retry_at = scene.now + seconds(5)};
  const Plan held = scene.plan();
  EXPECT_TRUE(only<CreatePod>(held).empty());
  EXPECT_EQ(held.requeue_at, scene.now + seconds(5));
  scene.advance(seconds(5));
  EXPECT_EQ(only<CreatePod>(scene.plan()).size(), 1u);
  scene.seen.refusal.reset();
  EXPECT_EQ(only<CreatePod>(scene.plan()).size(), 3u);
}

TEST(Placement, APodThatHangsInTerminatingDoesNotHoldUpItsSuccessor) {
  Scene scene(1);
  scene.settle();
  scene.status().members = "2";
  scene.add_pod(0, 1).terminating = true;
  const Plan plan = scene.plan();
  EXPECT_EQ(only<DeletePod>(plan).size(), 0u);
  ASSERT_EQ(only<CreatePod>(plan).size(), 1u);
  EXPECT_EQ(only<CreatePod>(plan)[0].name, "job-worker-0-2");
}

TEST(Assignment, ARoundIsRecordedOnceEveryPodRunsAndToldInTheNextPass) {
  Scene scene(2);
  scene.settle();
  scene.add_pod(0);
  scene.add_pod(1).phase = "Pending";
  EXPECT_EQ(written(scene, scene.plan()).round, 0);
  scene.seen.pods[1].phase = "Running";
  const Plan decision = scene.plan();
  EXPECT_TRUE(is_decision(decision));
  EXPECT_EQ(only<EmitEvent>(decision).front().reason, "RoundStarted");
  scene.settle();
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().worldHash.size(), 16u);
  EXPECT_EQ(scene.status().rendezvous->host, "10.0.0.1");
  EXPECT_EQ(scene.status().rendezvous->worldSize, 2);
  EXPECT_EQ(scene.status().state, "Forming");
  const Plan plan = scene.plan();
  const auto puts = only<PutAssignment>(plan);
  ASSERT_EQ(puts.size(), 2u);
  EXPECT_EQ(puts[1].target.ip, "10.0.0.2");
  EXPECT_EQ(puts[1].node_index, 1);
  EXPECT_EQ(puts[1].assignment->action, "Run");
  EXPECT_EQ(puts[1].assignment->hash, scene.status().worldHash);
  EXPECT_EQ(puts[1].assignment->world.round, 1);
  EXPECT_EQ(plan.watch.size(), 2u);
}

TEST(Assignment, OnlyAgentsThatAreBehindAreTold) {
  Scene scene(2);
  scene.form();
  scene.add_agent(0, WorkerPhase::kForming);
  const auto puts = only<PutAssignment>(scene.plan());
  ASSERT_EQ(puts.size(), 1u);
  EXPECT_EQ(puts[0].node_index, 1);
  scene.add_agent(1, WorkerPhase::kForming);
  EXPECT_TRUE(only<PutAssignment>(scene.plan()).empty());
}

TEST(Assignment, ANewRoundBeginsWhereTheOldOneCannotBeTheSame) {
  struct Case {
    const char* name;
    std::function<void(Scene&)> change;
    int64_t round;
  };
  const Case cases[] = {
      {"an address changed", [](Scene& scene) { scene.seen.pods[0].ip = "10.9.9.9"; }, 2},
      {"a port changed", [](Scene& scene) { scene.seen.job.spec.rendezvous.port = 30000; }, 2},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    Scene scene(2);
    scene.train();
    test.change(scene);
    const Plan plan = scene.plan();
    EXPECT_TRUE(is_decision(plan)) << plan.why;
    const TrainingJobStatus status = written(scene, plan);
    EXPECT_EQ(status.round, test.round);
    EXPECT_NE(status.worldHash, scene.status().worldHash);
    EXPECT_EQ(status.restarts, 0);
  }
}

TEST(StatusPolicy, AJobRunsOnceEveryRankTrains) {
  Scene scene(2);
  scene.form();
  scene.add_agent(0);
  scene.add_agent(1, WorkerPhase::kBroadcasting);
  scene.settle();
  EXPECT_FALSE(is_true(scene.status(), kRunning));
  scene.agent(1).workers[0].phase = WorkerPhase::kSaving;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kRunning));
  EXPECT_TRUE(is_true(scene.status(), kReady));
  EXPECT_TRUE(is_true(scene.status(), kPodsScheduled));
  EXPECT_EQ(scene.status().state, "Running");
  EXPECT_EQ(scene.status().nodes.ready, 2);
  EXPECT_TRUE(scene.plan().actions.empty());
}

TEST(StatusPolicy, IgnoranceIsNoNews) {
  Scene scene(2);
  scene.train();
  ASSERT_TRUE(is_true(scene.status(), kRunning));
  scene.seen.agents.clear();  // as after a restart of the controller
  EXPECT_TRUE(is_true(written(scene, scene.plan()), kRunning));
}

TEST(StatusPolicy, TransitionTimesChangeOnlyWhenAConditionFlips) {
  Scene scene(1);
  scene.train();
  const std::string before = condition(scene.status(), kRunning).lastTransitionTime;
  scene.advance(minutes(5));
  scene.add_agent(0);
  scene.seen.job.metadata.generation = 4;
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kRunning).lastTransitionTime, before);
  EXPECT_EQ(condition(scene.status(), kRunning).observedGeneration, 4);
  EXPECT_EQ(scene.status().observedGeneration, 4);
}

TEST(StatusPolicy, MereProgressWaitsForItsBudgetAndNothingElseDoes) {
  Scene scene(1);
  scene.train();
  scene.agent(0).progress.emplace();
  scene.agent(0).progress->step = 5;
  scene.seen.may_write_progress = false;
  scene.seen.progress_writable_at = scene.now + seconds(3);
  Plan plan = scene.plan();
  EXPECT_TRUE(only<WriteStatus>(plan).empty());
  EXPECT_EQ(plan.requeue_at, scene.now + seconds(3));
  scene.seen.may_write_progress = true;
  plan = scene.plan();
  ASSERT_EQ(only<WriteStatus>(plan).size(), 1u);
  EXPECT_TRUE(only<WriteStatus>(plan)[0].progress_only);
  EXPECT_EQ(written(scene, plan).progress->step, 5);
  EXPECT_FALSE(written(scene, plan).progress->updatedAt.empty());
  scene.seen.may_write_progress = false;
  scene.fail_worker(0, 1, 1);
  plan = scene.plan();
  ASSERT_EQ(only<WriteStatus>(plan).size(), 1u);
  EXPECT_FALSE(only<WriteStatus>(plan)[0].progress_only);
}

TEST(StatusPolicy, HowManyPodsRunWaitsForTheBudgetTooUntilAllDo) {
  Scene scene(3);
  scene.settle();
  scene.add_pod(0);
  scene.settle();
  EXPECT_EQ(scene.status().nodes.ready, 1);
  scene.seen.may_write_progress = false;
  scene.seen.progress_writable_at = scene.now + seconds(1);
  scene.add_pod(1);
  Plan plan = scene.plan();
  EXPECT_TRUE(only<WriteStatus>(plan).empty());
  EXPECT_EQ(plan.requeue_at, scene.now + seconds(1));
  scene.add_pod(2);
  plan = scene.plan();
  ASSERT_EQ(only<WriteStatus>(plan).size(), 1u);
  EXPECT_EQ(written(scene, plan).nodes.ready, 3);
  EXPECT_TRUE(is_true(written(scene, plan), kReady));
  scene.settle();
  scene.seen.pods[1].waiting = "ImagePullBackOff";
  scene.seen.pods[1].phase = "Pending";
  plan = scene.plan();
  ASSERT_EQ(only<WriteStatus>(plan).size(), 1u) << "a reason is no number";
}

TEST(StatusPolicy, APodThatTheServerRefusesIsSaidInACondition) {
  Scene scene(1);
  scene.settle();
  scene.seen.refusal = {.reason = "QuotaExceeded",
                        .message = "pods \"job-worker-0-1\" is forbidden: exceeded quota: q",
                        .retry_at = scene.now + seconds(5)};
  const Plan plan = scene.plan();
  const TrainingJobStatus status = written(scene, plan);
  EXPECT_EQ(condition(status, kPodsScheduled).reason, "QuotaExceeded");
  EXPECT_EQ(condition(status, kPodsScheduled).message, scene.seen.refusal->message);
  ASSERT_EQ(only<EmitEvent>(plan).size(), 1u);
  EXPECT_EQ(only<EmitEvent>(plan)[0].reason, "QuotaExceeded");
  scene.settle();
  EXPECT_TRUE(only<EmitEvent>(scene.plan()).empty()) << "it is said once";
}

TEST(StatusPolicy, WhatKeepsAPodFromStartingIsNamedOnceAndTheJobWaits) {
  struct Case {
    const char* waiting;
    const char* reason;
  };
  const Case cases[] = {{"ErrImagePull", "ImagePullFailed"},
                        {"ImagePullBackOff", "ImagePullFailed"},
                        {"InvalidImageName", "ImagePullFailed"},
                        {"CreateContainerConfigError", "ContainerCreateFailed"},
                        {"RunContainerError", "ContainerCreateFailed"}};
  for (const Case& test : cases) {
    SCOPED_TRACE(test.waiting);
    Scene scene(1);
    scene.settle();
    PodView& pod = scene.add_pod(0);
    pod.phase = "Pending";
    pod.waiting = test.waiting;
    pod.waiting_message = "the kubelet's words";
    const Plan plan = scene.plan();
    const Condition ready = condition(written(scene, plan), kReady);
    EXPECT_EQ(ready.reason, test.reason);
    EXPECT_NE(ready.message.find("the kubelet's words"), std::string::npos) << ready.message;
    ASSERT_EQ(only<EmitEvent>(plan).size(), 1u);
    EXPECT_EQ(only<EmitEvent>(plan)[0].reason, test.reason);
    scene.settle();
    EXPECT_TRUE(scene.plan().actions.empty());
  }
}

TEST(StatusPolicy, AConditionsMessageIsNeverLongerThanTheServerTakes) {
  constexpr size_t kHuge = 100'000;
  Scene scene(2);
  scene.settle();
  PodView& pod = scene.add_pod(0);
  pod.phase = "Pending";
  pod.waiting = "ErrImagePull";
  pod.waiting_message = std::string(kHuge, 'm');
  scene.seen.refusal = PodRefusal{.reason = "PodInvalid", .message = std::string(kHuge, 'r')};
  scene.settle();
  for (const Condition& condition : scene.status().conditions) {
    EXPECT_LE(condition.message.size(), kMessageBytesMax) << condition.type;
  }
  EXPECT_EQ(condition(scene.status(), kReady).reason, "ImagePullFailed");
  EXPECT_EQ(condition(scene.status(), kPodsScheduled).reason, "PodInvalid");
  EXPECT_EQ(condition(scene.status(), kPodsScheduled).message.size(), kMessageBytesMax);
}

TEST(Completion, IsRecordedWhenEveryNodeHasCompletedTheRound) {
  Scene scene(2);
  scene.train();
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_FALSE(is_true(written(scene, scene.plan()), kComplete));
    scene.agent(i).phase = "Completed";
    scene.agent(i).workers[0].running = false;
    scene.agent(i).workers[0].reason = "Completed";
  }
  const Plan plan = scene.plan();
  EXPECT_TRUE(is_decision(plan));
  const TrainingJobStatus status = written(scene, plan);
  EXPECT_TRUE(is_true(status, kComplete));
  EXPECT_FALSE(is_true(status, kRunning));
  EXPECT_EQ(status.state, "Complete");
  EXPECT_FALSE(status.completionTime.empty());
}

TEST(Completion, APodThatSucceededSpeaksForItself) {
  Scene scene(2);
  scene.train();
  scene.seen.agents.clear();
  for (PodView& pod : scene.seen.pods) pod.phase = "Succeeded";
  EXPECT_TRUE(is_true(written(scene, scene.plan()), kComplete));
}

TEST(Completion, AnAgentOfAnEarlierRoundDoesNotCount) {
  Scene scene(1);
  scene.train(5);
  scene.agent(0).phase = "Completed";
  scene.agent(0).round = 4;
  EXPECT_FALSE(is_true(written(scene, scene.plan()), kComplete));
}

TEST(Ending, AgentsAreAskedToExitAndPodsThatDoNotAreDeleted) {
  Scene scene(2);
  scene.train();
  for (int64_t i = 0; i < 2; ++i) scene.agent(i).phase = "Completed";
  scene.settle();
  ASSERT_TRUE(is_true(scene.status(), kComplete));
  auto puts = only<PutAssignment>(scene.plan());
  ASSERT_EQ(puts.size(), 2u);
  EXPECT_EQ(puts[0].assignment->action, "Exit");
  EXPECT_EQ(puts[0].assignment->exit_code, 0);
  scene.agent(0).phase = "Exiting";
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 1u);
  scene.seen.pods[0].phase = "Succeeded";
  scene.advance(scene.limits.exit_wait);
  const Plan late = scene.plan();
  EXPECT_TRUE(only<PutAssignment>(late).empty());
  ASSERT_EQ(only<DeletePod>(late).size(), 1u);
  EXPECT_EQ(only<DeletePod>(late)[0].name, "job-worker-1-1");
}

TEST(Ending, APodWhoseAgentIsSilentGoesInTimeAlsoWhereTheClockWasSetBack) {
  Scene scene(2);
  scene.train();
  for (int64_t i = 0; i < 2; ++i) scene.agent(i).phase = "Completed";
  scene.settle();
  ASSERT_TRUE(is_true(scene.status(), kComplete));
  scene.seen.wall_now -= std::chrono::hours(3);
  scene.now += scene.limits.exit_wait;
  scene.seen.agents["job-worker-0-1-uid"].last_heard = scene.now;
  const Plan plan = scene.plan();
  ASSERT_EQ(only<PutAssignment>(plan).size(), 1u);
  EXPECT_EQ(only<PutAssignment>(plan)[0].target.pod_name, "job-worker-0-1");
  ASSERT_EQ(only<DeletePod>(plan).size(), 1u);
  EXPECT_EQ(only<DeletePod>(plan)[0].name, "job-worker-1-1");
  EXPECT_LE(plan.requeue_at, scene.now + scene.limits.exit_wait);
}

TEST(Ending, IsForEver) {
  for (const char* type : {kComplete, kFailed}) {
    SCOPED_TRACE(type);
    Scene scene(1);
    scene.train();
    set_condition(scene.status(), {.type = type,
                                   .value = true,
                                   .reason = "x",
                                   .message = "",
                                   .time = "2026-01-02T03:04:05Z",
                                   .generation = 1});
    scene.status().state = type;
    scene.seen.job.spec.suspend = true;
    scene.seen.job.spec.nodes = 4;
    scene.seen.pods[0].phase = "Failed";
    const Plan plan = scene.plan();
    const TrainingJobStatus status = written(scene, plan);
    EXPECT_TRUE(is_true(status, type));
    EXPECT_EQ(status.round, scene.status().round);
    EXPECT_EQ(status.members, "1");
    EXPECT_EQ(status.state, type);
    EXPECT_TRUE(only<CreatePod>(plan).empty());
  }
}

TEST(Suspension, StopsThePodsAndResumesWithNewOnes) {
  Scene scene(2);
  scene.train();
  scene.seen.job.spec.suspend = true;
  EXPECT_TRUE(is_decision(scene.plan()));
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kSuspended));
  EXPECT_EQ(scene.status().state, "Suspended");
  EXPECT_EQ(only<DeletePod>(scene.plan()).size(), 2u);
  scene.seen.pods.clear();
  scene.settle();
  scene.seen.job.spec.suspend = false;
  EXPECT_TRUE(is_decision(scene.plan()));
  scene.settle();
  EXPECT_FALSE(is_true(scene.status(), kSuspended));
  EXPECT_EQ(scene.status().members, "2,2");
  EXPECT_EQ(scene.status().restarts, 0);
  EXPECT_EQ(only<CreatePod>(scene.plan())[0].name, "job-worker-0-2");
  scene.add_pod(0, 2);
  scene.add_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.status().round, 2);
}

TEST(Suspension, WaitsForOldPodsToSaveButNotForThoseThatHang) {
  Scene scene(1);
  scene.train();
  scene.seen.job.spec.suspend = true;
  scene.settle();
  scene.settle();
  scene.seen.job.spec.suspend = false;
  scene.seen.pods[0].terminating = true;
  scene.seen.pods[0].gone_by = scene.seen.wall_now + seconds(20);
  Plan plan = scene.plan();
  EXPECT_TRUE(is_true(written(scene, plan), kSuspended));
  EXPECT_EQ(plan.requeue_at, scene.now + seconds(20));
  scene.advance(seconds(20));
  EXPECT_FALSE(is_true(written(scene, scene.plan()), kSuspended));
}

TEST(Suspension, AJobMayBeBornSuspended) {
  Scene scene(1);
  scene.seen.job.spec.suspend = true;
  scene.settle();
  EXPECT_EQ(scene.status().state, "Suspended");
  EXPECT_TRUE(scene.plan().actions.empty());
  scene.seen.job.spec.suspend = false;
  scene.settle();
  scene.settle();
  EXPECT_EQ(scene.status().members, "1");
}

TEST(Validation, AnInvalidSpecIsNamedAndNothingIsDone) {
  Scene scene(2);
  scene.seen.job.spec.train->batch.global = 1;
  Plan plan = scene.plan();
  EXPECT_TRUE(is_decision(plan));
  TrainingJobStatus status = written(scene, plan);
  EXPECT_EQ(condition(status, kValid).status, "False");
  EXPECT_NE(condition(status, kValid).message.find("spec.train.batch"), std::string::npos);
  EXPECT_EQ(only<EmitEvent>(plan).size(), 1u);
  scene.settle();
  EXPECT_TRUE(scene.plan().actions.empty());
  scene.seen.job.spec.train->batch.global = 128;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kValid));
}

TEST(Validation, ManyProblemsAreCutBetweenCharactersAndWrittenOnce) {
  for (const char* start : {"", "x"}) {  // one of them would end within a character
    Scene scene(1);
    std::string problem(start);
    for (int i = 0; i < 5000; ++i) problem += "\u00e9";
    scene.seen.problems = {problem};
    scene.settle();
    const std::string message = condition(scene.status(), kValid).message;
    EXPECT_EQ(message.find("\ufffd"), std::string::npos);
    EXPECT_EQ(Json::parse(dump_json(message)), Json(message)) << "as the server keeps it";
    EXPECT_LE(message.size(), kMessageBytesMax);
    EXPECT_GE(message.size(), kMessageBytesMax - 1);
    EXPECT_TRUE(scene.plan().actions.empty());
  }
}

TEST(Validation, ARunningJobWhoseSpecBecomesInvalidIsLeftAlone) {
  Scene scene(2);
  scene.train();
  scene.seen.problems = {"spec.nodes: the string \"two\" is not a number"};
  scene.settle();
  EXPECT_FALSE(is_true(scene.status(), kValid));
  const Plan plan = scene.plan();
  EXPECT_TRUE(plan.actions.empty()) << plan.why;
  EXPECT_EQ(plan.watch.size(), 2u);
}

TEST(Validation, ARunningJobWhoseSpecBecomesInvalidCanBeSuspendedAndResumesOnceItIsValid) {
  Scene scene(2);
  scene.train();
  scene.seen.problems = {"spec.nodes: the string \"two\" is not a number"};
  scene.seen.job.spec.suspend = true;
  EXPECT_TRUE(is_decision(scene.plan()));
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kSuspended));
  EXPECT_EQ(condition(scene.status(), kValid).reason, "InvalidSpec");
  EXPECT_EQ(scene.status().startTime, "") << "as a batch/Job's";
  EXPECT_EQ(only<DeletePod>(scene.plan()).size(), 2u);
  scene.seen.pods.clear();
  scene.seen.job.spec.suspend = false;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kSuspended)) << "what would be resumed isn't known";
  scene.seen.problems.clear();
  scene.settle();
  EXPECT_FALSE(is_true(scene.status(), kSuspended));
  EXPECT_TRUE(is_true(scene.status(), kValid));
  EXPECT_FALSE(scene.status().startTime.empty());
  EXPECT_EQ(only<CreatePod>(scene.plan()).size(), 2u);
}

TEST(Validation, AJobThatIsDoneIsCompleteWhateverBecameOfItsSpec) {
  Scene scene(1);
  scene.train();
  scene.agent(0).phase = "Completed";
  scene.seen.problems = {"spec.nodes: the string \"two\" is not a number"};
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kComplete));
}

TEST(Deletion, DeletesThePodsOfAJobThatIsGoing) {
  Scene scene(2);
  scene.train();
  scene.seen.job.metadata.deletionTimestamp = "2026-01-02T03:04:05Z";
  scene.seen.pods[0].terminating = true;
  const Plan plan = scene.plan();
  ASSERT_EQ(plan.actions.size(), 1u);
  EXPECT_EQ(only<DeletePod>(plan)[0].name, "job-worker-1-1");
}

TEST(Deletion, AJobThatHasPodsIsNotGivenToAnotherController) {
  Scene scene(2);
  scene.train();
  scene.seen.job.spec.managedBy = "kueue.x-k8s.io/multikueue";
  ++scene.seen.job.metadata.generation;
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kValid).message.substr(0, 15), "spec.managedBy:");
  EXPECT_EQ(scene.plan().watch.size(), 2u) << "what runs goes on";
  scene.seen.job.spec.managedBy = kControllerName;  // the same as none
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kValid));
}

TEST(Deletion, ASuspendedJobThatIsGivenToAnotherControllerLeavesNoPods) {
  Scene scene(2);
  scene.train();
  scene.seen.job.spec.suspend = true;
  scene.settle();
  scene.seen.job.spec.suspend = false;
  scene.seen.job.spec.managedBy = "kueue.x-k8s.io/multikueue";
  EXPECT_EQ(only<DeletePod>(scene.plan()).size(), 2u);
  EXPECT_TRUE(only<WriteStatus>(scene.plan()).empty());
  scene.seen.pods.clear();
  EXPECT_TRUE(scene.plan().actions.empty());
}

TEST(Deletion, AJobOfAnotherControllerIsNotTouched) {
  Scene scene(1);
  scene.seen.job.spec.managedBy = "kueue.x-k8s.io/multikueue";
  EXPECT_TRUE(scene.plan().actions.empty());
  scene.seen.job.spec.managedBy = kControllerName;
  EXPECT_FALSE(scene.plan().actions.empty());
}

}  // namespace
}  // namespace lockstep
