#include <gtest/gtest.h>

#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

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

TEST(StatusPolicy, HoldingsAreTheLargestOfAllNodesOnceEachHasReported) {
  Scene scene(2);
  scene.train();
  EXPECT_FALSE(scene.status().holdings) << "agents of older versions report none";
  scene.agent(0).holdings = HoldingsStatus{
      .sharding = "parameters", .shardingRanks = 2, .parametersBytes = 100, .activationsBytes = 7};
  scene.agent(1).holdings = HoldingsStatus{
      .sharding = "parameters", .shardingRanks = 2, .parametersBytes = 90, .activationsBytes = 8};
  const AgentView whole = scene.seen.agents.begin()->second;
  const auto first = scene.seen.agents.begin()->first;
  scene.seen.agents.erase(first);
  EXPECT_FALSE(written(scene, scene.plan()).holdings) << "one agent is missing";
  scene.seen.agents[first] = whole;
  const Plan plan = scene.plan();
  ASSERT_EQ(only<WriteStatus>(plan).size(), 1u);
  EXPECT_TRUE(only<WriteStatus>(plan)[0].progress_only);
  scene.settle();
  const HoldingsStatus expected{
      .sharding = "parameters", .shardingRanks = 2, .parametersBytes = 100, .activationsBytes = 8};
  EXPECT_EQ(scene.status().holdings, expected);
  scene.seen.agents.clear();  // as after a restart of the controller
  EXPECT_EQ(written(scene, scene.plan()).holdings, expected);
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
  ASSERT_EQ(only<WriteStatus>(plan).size(), 1u) << "a new reason is more than progress";
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
  EXPECT_TRUE(only<EmitEvent>(scene.plan()).empty()) << "the event is sent once";
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

}  // namespace
}  // namespace lockstep::plan
