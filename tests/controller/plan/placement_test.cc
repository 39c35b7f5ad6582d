#include <gtest/gtest.h>

#include <algorithm>

#include "controller/plan/members.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

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

TEST(Membership, AChangeOfNodesKeepsThoseWhoStay) {
  Scene scene(2);
  scene.train();
  scene.status().members = "4,2";
  scene.seen.job.spec.nodes = 4;
  TrainingJobStatus status = written(scene, scene.plan());
  EXPECT_EQ(status.members, "4,2,1,1");
  scene.seen.job.spec.nodes = 1;
  status = written(scene, scene.plan());
  EXPECT_EQ(status.members, "4");
  EXPECT_EQ(status.worldHash, "") << "a member of the round was removed";
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
      {"of remaining members and of higher indices",
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

// Its agent would train on in its round, next to a newer one.
TEST(Placement, LooksForThePodThatANewOneReplacesIfItIsNotSeen) {
  Scene scene(3);
  scene.settle();
  scene.status().members = "1,4,2";
  scene.add_pod(2, 1).terminating = true;
  Plan plan = scene.plan();
  ASSERT_EQ(only<ConfirmPod>(plan).size(), 1u);
  EXPECT_EQ(only<ConfirmPod>(plan)[0].name, "job-worker-1-3");
  ASSERT_EQ(only<CreatePod>(plan).size(), 2u) << "the others do not wait for that";
  EXPECT_EQ(only<CreatePod>(plan)[0].name, "job-worker-0-1");
  EXPECT_EQ(only<CreatePod>(plan)[1].name, "job-worker-2-2");

  Scene there = scene;
  there.add_pod(1, 3);
  plan = there.plan();
  EXPECT_EQ(only<ConfirmPod>(plan).size(), 0u);
  ASSERT_EQ(only<DeletePod>(plan).size(), 1u);
  EXPECT_EQ(only<DeletePod>(plan)[0].name, "job-worker-1-3");
  EXPECT_EQ(only<CreatePod>(plan).size(), 3u);

  scene.seen.absent_pods = {"job-worker-1-3"};
  plan = scene.plan();
  EXPECT_EQ(only<ConfirmPod>(plan).size(), 0u);
  EXPECT_EQ(only<CreatePod>(plan).size(), 3u);
}

TEST(Placement, LooksForAReplacedPodAlsoWhileTheNewOneIsHeldBack) {
  Scene scene(1);
  scene.settle();
  scene.status().members = "2";
  scene.seen.refusal = {.reason = "QuotaExceeded", .retry_at = scene.now + seconds(5)};
  EXPECT_EQ(only<ConfirmPod>(scene.plan()).size(), 1u);
}

TEST(Assignment, RanksThatShareLayersAcrossNodesAreWarnedOfOnce) {
  for (const int64_t tensor : {1, 2, 4}) {
    Scene scene(4);
    scene.seen.job.spec.processesPerNode = 2;
    scene.seen.job.spec.parallelism.tensor = tensor;
    scene.seen.job.spec.train->model.heads = 4;
    scene.settle();
    for (int64_t i = 0; i < 4; ++i) scene.add_pod(i);
    const Plan plan = scene.plan();
    std::vector<std::string> reasons;
    for (const EmitEvent& event : only<EmitEvent>(plan)) reasons.push_back(event.reason);
    std::ranges::sort(reasons);
    EXPECT_EQ(reasons, tensor == 4 ? (std::vector<std::string>{"RoundStarted", "TensorSpread"})
                                   : std::vector<std::string>{"RoundStarted"});
    scene.settle();
    scene.status().round = 2;
    for (const EmitEvent& event : only<EmitEvent>(scene.plan())) {
      EXPECT_NE(event.reason, "TensorSpread");
    }
  }
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

// Agents of older versions do not know "auto".
TEST(Assignment, SaysWhatBackwardRecomputes) {
  for (const auto& [schedule, recompute] : {std::pair("gpipe", "blocks"), {"1f1b", "none"}}) {
    Scene scene(2);
    scene.seen.job.spec.train->model.layers = 2;
    scene.seen.job.spec.parallelism.pipeline = 2;
    scene.seen.job.spec.parallelism.pipelineSchedule = schedule;
    scene.form();
    for (int64_t i = 0; i < 2; ++i) scene.add_agent(i).round = 0;
    const auto puts = only<PutAssignment>(scene.plan());
    ASSERT_EQ(puts.size(), 2u);
    EXPECT_EQ(puts[0].assignment->train->recompute, recompute);
  }
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

// Somebody has made this job the owner of another one's pod, whose node index and incarnation are
// those of a member.
TEST(Placement, APodOfAnotherJobTakesNoMembersPlace) {
  for (const bool comes_first : {true, false}) {
    SCOPED_TRACE(comes_first);
    Scene scene(2);
    scene.train();
    PodView foreign = scene.seen.pods[1];
    foreign.name = "other-worker-1-1";
    foreign.uid = "foreign";
    foreign.phase = "Failed";
    auto& pods = scene.seen.pods;
    pods.insert(comes_first ? pods.begin() : pods.end(), foreign);
    const Plan plan = scene.plan();
    EXPECT_FALSE(written(scene, plan).lastFailure.has_value()) << plan.why;
    ASSERT_EQ(plan.watch.size(), 2u);
    EXPECT_EQ(plan.watch[1].pod_name, "job-worker-1-1");
  }
}

}  // namespace
}  // namespace lockstep::plan
