#include <gtest/gtest.h>

#include "controller/plan/names.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;

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

TEST(Completion, APodWhoseAgentLeftWellSpeaksForItselfWhateverElseRunsInIt) {
  Scene scene(2);
  scene.train();
  scene.seen.agents.clear();
  for (PodView& pod : scene.seen.pods) pod.exit_code = 0;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kComplete));
  EXPECT_TRUE(scene.plan().actions.empty()) << "no agent can be asked to exit";
  scene.advance(scene.limits.exit_timeout);
  EXPECT_EQ(only<DeletePod>(scene.plan()).size(), 2u);
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
  scene.advance(scene.limits.exit_timeout);
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
  scene.now += scene.limits.exit_timeout;
  scene.seen.agents["job-worker-0-1-uid"].last_heard = scene.now;
  const Plan plan = scene.plan();
  ASSERT_EQ(only<PutAssignment>(plan).size(), 1u);
  EXPECT_EQ(only<PutAssignment>(plan)[0].target.pod_name, "job-worker-0-1");
  ASSERT_EQ(only<DeletePod>(plan).size(), 1u);
  EXPECT_EQ(only<DeletePod>(plan)[0].name, "job-worker-1-1");
  EXPECT_LE(plan.requeue_at, scene.now + scene.limits.exit_timeout);
}

TEST(Ending, AJobExpiresThoughAPodHangsInTerminatingPastItsTime) {
  Scene scene(2);
  scene.seen.job.spec.ttlSecondsAfterFinished = 5;
  scene.train();
  for (int64_t i = 0; i < 2; ++i) scene.agent(i).phase = "Completed";
  scene.settle();
  scene.seen.pods[0].phase = "Succeeded";
  scene.seen.pods[1].terminating = true;
  scene.seen.pods[1].gone_by = scene.seen.wall_now + seconds(30);
  scene.advance(seconds(10));
  EXPECT_TRUE(only<DeleteJob>(scene.plan()).empty()) << "the pod may still send its final report";
  EXPECT_EQ(scene.plan().requeue_at, scene.now + seconds(20));
  scene.advance(seconds(20));
  EXPECT_EQ(only<DeleteJob>(scene.plan()).size(), 1u);
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
  EXPECT_EQ(only<ConfirmPod>(scene.plan()).size(), 2u) << "are the old ones gone?";
  scene.seen.absent_pods = {"job-worker-0-1", "job-worker-1-1"};
  EXPECT_EQ(only<CreatePod>(scene.plan())[0].name, "job-worker-0-2");
  scene.add_pod(0, 2);
  scene.add_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.status().round, 2);
}

// Ranks save when they are stopped, at a step that nobody else knows.
TEST(Suspension, TellsTheCheckpointThatTheOldPodsSave) {
  Scene scene(2);
  scene.seen.job.spec.checkpoint.path = "/ckpt";
  scene.train();
  scene.seen.job.spec.suspend = true;
  scene.settle();
  for (PodView& pod : scene.seen.pods) pod.terminating = true;
  EXPECT_EQ(scene.plan().watch.size(), 2u);
  scene.agent(0).storage = StorageState{.saved = 1};
  scene.agent(0).last_checkpoint = CheckpointStatus{.step = 205, .path = "/ckpt/step-00000205"};
  scene.settle();
  ASSERT_TRUE(scene.status().lastCheckpoint.has_value());
  EXPECT_EQ(scene.status().lastCheckpoint->step, 205);
  EXPECT_EQ(scene.status().state, "Suspended");
}

TEST(Suspension, AsksNoAgentOfAnOldPodThatHasNowhereToSave) {
  Scene scene(1);
  scene.train();
  scene.seen.job.spec.suspend = true;
  scene.settle();
  scene.seen.pods[0].terminating = true;
  EXPECT_TRUE(scene.plan().watch.empty());
}

TEST(Suspension, TellsNothingOfAnOlderRound) {
  Scene scene(1);
  scene.seen.job.spec.checkpoint.path = "/ckpt";
  scene.train();
  scene.seen.job.spec.suspend = true;
  scene.settle();
  scene.agent(0).round -= 1;
  scene.agent(0).storage = StorageState{};
  scene.agent(0).last_checkpoint = CheckpointStatus{.step = 205, .path = "/ckpt/step-00000205"};
  scene.settle();
  EXPECT_FALSE(scene.status().lastCheckpoint.has_value());
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
  for (const char* start : {"", "x"}) {  // one of the two would be cut within a character
    Scene scene(1);
    std::string problem(start);
    for (int i = 0; i < 5000; ++i) problem += "\u00e9";
    scene.seen.problems = {problem};
    scene.settle();
    const std::string message = condition(scene.status(), kValid).message;
    EXPECT_EQ(message.find("\ufffd"), std::string::npos);
    EXPECT_EQ(Json::parse(dump_json(message)), Json(message)) << "it must be valid UTF-8";
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
  EXPECT_EQ(scene.status().startTime, "")
      << "a suspension restarts the deadline, as for a batch/Job";
  EXPECT_EQ(only<DeletePod>(scene.plan()).size(), 2u);
  scene.seen.pods.clear();
  scene.seen.job.spec.suspend = false;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kSuspended))
      << "the spec that would be resumed is unreadable";
  scene.seen.problems.clear();
  scene.settle();
  EXPECT_FALSE(is_true(scene.status(), kSuspended));
  EXPECT_TRUE(is_true(scene.status(), kValid));
  EXPECT_FALSE(scene.status().startTime.empty());
  scene.seen.absent_pods = {"job-worker-0-1", "job-worker-1-1"};
  EXPECT_EQ(only<CreatePod>(scene.plan()).size(), 2u);
}

TEST(Validation, AnInvalidEditNeitherStopsTheDeadlineNorHidesAFailure) {
  Scene scene(2);
  scene.seen.job.spec.activeDeadlineSeconds = 3600;
  scene.train();
  scene.seen.job.spec.image = "other";
  ++scene.seen.job.metadata.generation;
  scene.settle();
  EXPECT_FALSE(is_true(scene.status(), kValid));
  EXPECT_EQ(scene.plan().requeue_at, scene.now + seconds(3600));
  scene.fail_worker(1, 139, 0.5, "Signal");
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 0);
  const std::string message = condition(scene.status(), kValid).message;
  EXPECT_NE(message.find("spec.image"), std::string::npos) << message;
  EXPECT_NE(message.find("node index 1 failed (Signal)"), std::string::npos) << message;
  EXPECT_TRUE(scene.plan().actions.empty()) << "the message is written once";
  scene.advance(seconds(3600));
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kFailed).reason, "DeadlineExceeded");
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
  EXPECT_EQ(scene.plan().watch.size(), 2u) << "running pods keep running";
  scene.seen.job.spec.managedBy = kControllerName;  // the same as unset
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
}  // namespace lockstep::plan
