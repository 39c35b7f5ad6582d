#include <gtest/gtest.h>

#include "controller/plan/fixed_fields.h"
#include "controller/plan/ledger.h"
#include "controller/plan/pod_template.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;

// A job that has ended, and its pod with it.
Scene ended_scene(int64_t ttl) {
  Scene scene(1);
  scene.seen.job.spec.ttlSecondsAfterFinished = ttl;
  scene.train();
  scene.agent(0).phase = "Completed";
  scene.settle();
  scene.seen.pods[0].phase = "Succeeded";
  return scene;
}

TEST(TimeToLive, AJobIsDeletedSoLongAfterItsEnd) {
  Scene scene = ended_scene(60);
  ASSERT_EQ(scene.status().state, "Complete");
  Plan plan = scene.plan();
  EXPECT_TRUE(only<DeleteJob>(plan).empty());
  EXPECT_EQ(plan.requeue_at, scene.now + seconds(60)) << "only time triggers the plan";
  scene.advance(seconds(60));
  plan = scene.plan();
  ASSERT_EQ(only<DeleteJob>(plan).size(), 1u);
  EXPECT_EQ(only<DeleteJob>(plan)[0].uid, "uid-of-job");
  EXPECT_EQ(only<DeleteJob>(plan)[0].resource_version, "7")
      << "the version for which the plan was made";
}

TEST(TimeToLive, ItsPodsLeaveFirst) {
  Scene scene = ended_scene(0);
  scene.seen.pods[0].phase = "Running";
  Plan plan = scene.plan();
  EXPECT_TRUE(only<DeleteJob>(plan).empty());
  EXPECT_EQ(only<PutAssignment>(plan).size(), 1u);
  scene.seen.pods[0].phase = "Succeeded";
  EXPECT_EQ(only<DeleteJob>(scene.plan()).size(), 1u) << "0 deletes the job immediately";
}

TEST(TimeToLive, WithoutOneAJobStays) {
  Scene scene = ended_scene(-1);
  scene.advance(std::chrono::hours(1000));
  EXPECT_TRUE(only<DeleteJob>(scene.plan()).empty());
}

TEST(TimeToLive, AJobThatRunsIsNotDeletedHoweverOld) {
  Scene scene(1);
  scene.seen.job.spec.ttlSecondsAfterFinished = 1;
  scene.train();
  scene.advance(seconds(20));
  EXPECT_TRUE(only<DeleteJob>(scene.plan()).empty());
}

TEST(FixedFields, AChangeIsRefusedByItsPathAndTheJobGoesOnAsItWas) {
  Scene scene(2);
  scene.train();
  scene.seen.job.spec.train->model.layers = 2;
  scene.seen.job.spec.image = "other";
  ++scene.seen.job.metadata.generation;
  Plan plan = scene.plan();
  EXPECT_TRUE(is_decision(plan)) << plan.why;
  scene.settle();
  const Condition& valid = condition(scene.status(), kValid);
  EXPECT_EQ(valid.status, "False");
  EXPECT_EQ(valid.reason, "InvalidSpec");
  EXPECT_EQ(valid.message,
            "spec.image: can't change while the job has pods; restore the old value, or set "
            "spec.suspend: true first\n"
            "spec.train.model: can't change while the job has pods; restore the old value, or set "
            "spec.suspend: true first");
  EXPECT_EQ(scene.status().state, "Running");
  EXPECT_EQ(scene.status().round, 1);
  scene.seen.job.spec.train->model.layers = 1;
  scene.seen.job.spec.image = "";
  ++scene.seen.job.metadata.generation;
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kValid).status, "True");
}

TEST(FixedFields, WhatIsNoPartOfThePodsMayChangeAtAnyTime) {
  Scene scene(2);
  scene.train();
  TrainingJobSpec& spec = scene.seen.job.spec;
  spec.nodes = 4;
  spec.train->batch.global = 128;
  spec.failure.maxRestarts = 3;
  spec.failure.rules = {{.event = "Error", .action = "Fail"}};
  spec.activeDeadlineSeconds = 100'000;
  spec.ttlSecondsAfterFinished = 5;
  spec.terminationGracePeriodSeconds = 3;
  spec.security.networkPolicy = "none";
  EXPECT_EQ(changed_fields(scene.status().fixed, spec).size(), 0u);
  spec.train.reset();
  spec.command = {"sh"};
  EXPECT_GE(changed_fields(scene.status().fixed, spec).size(), 2u);
}

TEST(FixedFields, WhileTheJobIsSuspendedAllMayChange) {
  Scene scene(1);
  scene.train();
  scene.seen.job.spec.suspend = true;  // both in one edit
  scene.seen.job.spec.image = "other";
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kSuspended));
  EXPECT_EQ(scene.status().fixed, "");
  scene.seen.job.spec.image = "a third";
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kValid));
  scene.seen.pods.clear();
  scene.seen.job.spec.suspend = false;
  scene.settle();
  EXPECT_EQ(scene.status().fixed, fixed_fields(scene.seen.job.spec));
  scene.seen.job.spec.image = "other";
  ++scene.seen.job.metadata.generation;
  scene.settle();
  EXPECT_FALSE(is_true(scene.status(), kValid));
}

TEST(FixedFields, FingerprintsLeaveDefaultsOutSoThatNewFieldsChangeNothing) {
  TrainingJobSpec spec;
  EXPECT_EQ(fixed_fields(spec), "");
  spec.security.networkPolicy = "job";
  EXPECT_EQ(fixed_fields(spec), "");
  spec.train.emplace();
  EXPECT_EQ(fixed_fields(spec), "train=is");
  spec.train->seed = 5;
  EXPECT_EQ(fixed_fields(spec).substr(0, 20), "train=is,train.seed=");
  EXPECT_TRUE(changed_fields("", spec).empty()) << "an older job has no fingerprints";
  EXPECT_FALSE(changed_fields("train=is,,=,x=1", spec).empty())
      << "malformed fingerprints count as changes";
  spec.train->seed = TrainSpec{}.seed;
  spec.train->attention = "cudnn";
  EXPECT_EQ(fixed_fields(spec).substr(0, 25), "train=is,train.attention=");
  // The same as before "auto" was the default.
  spec.train->attention = TrainSpec{}.attention;
  spec.train->recompute = "none";
  EXPECT_EQ(fixed_fields(spec), "train=is");
  spec.train->recompute = "blocks";
  const std::string blocks = fixed_fields(spec);
  EXPECT_EQ(blocks.substr(0, 25), "train=is,train.recompute=");
  spec.train->recompute = "auto";
  spec.parallelism = {.pipeline = 2, .pipelineSchedule = "gpipe"};
  EXPECT_EQ(fixed_fields(spec).substr(fixed_fields(spec).find("train=")), blocks);
}

TEST(SuccessPolicy, TheEndOfRankZeroAloneCompletesACommandIfItSaysSo) {
  for (const char* policy : {"AllRanks", "RankZero"}) {
    SCOPED_TRACE(policy);
    Scene scene(2);
    scene.seen.job.spec.train.reset();
    scene.seen.job.spec.command = {"sh"};
    scene.seen.job.spec.successPolicy = policy;
    scene.train();
    WorkerState& worker = scene.agent(0).workers[0];
    worker.running = false;
    worker.reason = "Completed";
    scene.settle();
    const bool by_rank_zero = scene.seen.job.spec.successPolicy == kRankZero;
    EXPECT_EQ(is_true(scene.status(), kComplete), by_rank_zero);
    if (!by_rank_zero) continue;
    EXPECT_EQ(condition(scene.status(), kComplete).reason, "RankZeroCompleted");
    const auto leave = only<PutAssignment>(scene.plan());
    ASSERT_EQ(leave.size(), 2u) << "the other agents are asked to exit";
    EXPECT_EQ(leave[1].assignment->action, "Exit");
    EXPECT_EQ(leave[1].assignment->exit_code, 0);
  }
}

TEST(SuccessPolicy, AnotherRankThatEndsFirstDecidesNothing) {
  Scene scene(2);
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"sh"};
  scene.seen.job.spec.successPolicy = kRankZero;
  scene.train();
  WorkerState& worker = scene.agent(1).workers[0];
  worker.running = false;
  worker.reason = "Completed";
  EXPECT_FALSE(is_true(written(scene, scene.plan()), kComplete));
}

FailureStatus failure_on(const char* node, const char* reason) {
  return {.node = node, .reason = reason};
}

TEST(AvoidNodes, CountsFailuresThatSpeakOfTheNode) {
  TrainingJobStatus status;
  status.failures = {failure_on("b", "Error"),      failure_on("a", "OOMKilled"),
                     failure_on("b", "Signal"),     failure_on("a", "Preempted"),
                     failure_on("", "AgentSilent"), failure_on("c", "PodDeleted")};
  EXPECT_EQ(nodes_to_avoid(status, 0), std::vector<std::string>{});
  EXPECT_EQ(nodes_to_avoid(status, 1), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(nodes_to_avoid(status, 2), std::vector<std::string>{"b"});
  EXPECT_EQ(nodes_to_avoid(status, 3), std::vector<std::string>{});
}

TEST(AvoidNodes, ANodeThatFailedOftenEnoughLosesItsPodAndGetsNoOther) {
  Scene scene(2);
  scene.seen.job.spec.failure.avoidNodes = 2;
  scene.train();
  scene.fail_worker(1, 1, 1);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->action, "RestartInPlace");
  for (int64_t i = 0; i < 2; ++i) scene.add_agent(i);
  scene.settle();
  scene.fail_worker(1, 1, 1);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->action, "RecreatePod");
  EXPECT_EQ(scene.status().members, "1,2");
  scene.advance(seconds(10));
  const auto pods = only<CreatePod>(scene.plan());
  ASSERT_EQ(pods.size(), 1u);
  const Json terms = body_of(pods[0])
                         .at("spec")
                         .at("affinity")
                         .at("nodeAffinity")
                         .at("requiredDuringSchedulingIgnoredDuringExecution")
                         .at("nodeSelectorTerms");
  EXPECT_EQ(
      terms.dump(),
      R"([{"matchFields":[{"key":"metadata.name","operator":"NotIn","values":["machine-1"]}]}])");
}

TEST(LostNodes, AreShunnedForTenMinutes) {
  Scene scene(2);
  scene.train();
  scene.advance(scene.limits.agent_silence);
  scene.seen.agents["job-worker-0-1-uid"].last_heard = scene.now;
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->reason, "AgentSilent");
  const auto affinity_of_new_pod = [&] {
    const auto pods = only<CreatePod>(scene.plan());
    EXPECT_EQ(pods.size(), 1u);
    const Json spec = pods.empty() ? Json::object() : body_of(pods[0]).at("spec");
    return spec.contains("affinity") ? spec.at("affinity").dump() : "";
  };
  scene.advance(seconds(10));
  EXPECT_EQ(
      affinity_of_new_pod(),
      R"({"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"preference":)"
      R"({"matchFields":[{"key":"metadata.name","operator":"NotIn","values":["machine-1"]}]},)"
      R"("weight":100}]}})");
  scene.advance(std::chrono::minutes(10));
  EXPECT_EQ(affinity_of_new_pod(), "");
}

TEST(LostNodes, AreThoseThatWereGoneNotThoseOnWhichARankFailed) {
  TrainingJobStatus status;
  const WallTime now = *wall_time_from_rfc3339("2026-01-01T00:10:00Z");
  for (const auto& [node, reason] : {std::pair("b", "AgentSilent"),
                                     {"a", "Error"},
                                     {"c", "NodeNotReady"},
                                     {"b", "AgentSilent"},
                                     {"d", "PodDeleted"},
                                     {"", "AgentSilent"}}) {
    status.failures.push_back(failure_on(node, reason));
    status.failures.back().time = "2026-01-01T00:00:00Z";
  }
  EXPECT_EQ(lately_lost_nodes(status, now), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(lately_lost_nodes(status, now + seconds(1)), std::vector<std::string>{});
}

TEST(AvoidNodes, AreAddedToEveryTermOfTheUsersOwnAffinity) {
  Scene scene(1);
  const NewPod pod{.avoid = {"x", "y"}};
  scene.seen.job.spec.podTemplate = Json::parse(R"({"spec":{"affinity":{"nodeAffinity":{
    "requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
      {"matchExpressions":[{"key":"gpu","operator":"Exists"}]},
      {"matchFields":[{"key":"metadata.name","operator":"In","values":["z"]}]}]}}}}})");
  const Json made = make_worker_pod(scene.seen.job, pod);
  const Json& terms = made.at("spec")
                          .at("affinity")
                          .at("nodeAffinity")
                          .at("requiredDuringSchedulingIgnoredDuringExecution")
                          .at("nodeSelectorTerms");
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_EQ(terms[0].at("matchFields").size(), 2u);
  EXPECT_EQ(terms[0].at("matchExpressions").size(), 1u);
  EXPECT_EQ(terms[1].at("matchFields").size(), 3u);
}

TEST(AvoidNodes, ATemplateOfAnotherShapeDoesNoHarm) {
  Scene scene(1);
  for (
      const char* shape :
      {R"("x")", R"({"nodeAffinity":[]})",
       R"({"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":["x",{"matchFields":4}]}}})"}) {
    scene.seen.job.spec.podTemplate["spec"]["affinity"] = Json::parse(shape);
    const Json made = make_worker_pod(scene.seen.job, {.avoid = {"x"}});
    EXPECT_TRUE(made.at("spec").at("affinity").is_object()) << shape;
  }
}

}  // namespace
}  // namespace lockstep::plan
