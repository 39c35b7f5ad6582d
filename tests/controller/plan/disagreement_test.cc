// Agents that report another round or world than the job has.
#include <gtest/gtest.h>

#include <functional>

#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;

TEST(Disagreement, OfAnAgentIsAFailureAndTheNextRoundIsAboveAll) {
  struct Case {
    const char* name;
    std::function<void(AgentState&)> change;
    int64_t round;
    size_t told;
  };
  const Case cases[] = {
      {"a later round", [](AgentState& state) { state.round = 8; }, 9, 2},
      {"another hash", [](AgentState& state) { state.hash = "other"; }, 2, 2},
      {"no round", [](AgentState& state) { state.round = 9'007'199'254'740'992; }, 2, 0},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    Scene scene(2);
    scene.train();
    const std::string hash = scene.status().worldHash;
    test.change(scene.agent(1));
    const Plan plan = scene.plan();
    EXPECT_TRUE(is_decision(plan)) << plan.why;
    scene.settle();
    EXPECT_EQ(scene.status().round, test.round);
    EXPECT_NE(scene.status().worldHash, hash);
    EXPECT_EQ(scene.status().restarts, 1);
    EXPECT_EQ(scene.status().lastFailure->reason, "AgentDisagrees");
    EXPECT_EQ(scene.status().lastFailure->nodeIndex, 1);
    EXPECT_EQ(scene.status().lastFailure->action, "RestartInPlace");
    EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), test.told);
  }
}

TEST(Disagreement, ThatGoesOnCostsTheAgentItsPodAndIsCounted) {
  Scene scene(2);
  scene.seen.job.spec.failure.maxRestarts = 2;
  scene.train();
  scene.agent(1).hash = "other";
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,1");
  scene.add_agent(0);
  scene.add_agent(1).hash = "other";
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,2");
  EXPECT_EQ(scene.status().restarts, 2);
  EXPECT_EQ(scene.status().lastFailure->action, "RecreatePod");
  EXPECT_EQ(scene.status().lastFailure->attempt, 2)
      << "the attempt counts, so the restart backs off";
  EXPECT_TRUE(only<CreatePod>(scene.plan()).empty());
  scene.advance(seconds(10));
  EXPECT_EQ(only<CreatePod>(scene.plan()).size(), 1u);
  scene.seen.pods.pop_back();
  scene.add_pod(1, 2).created_in_round = scene.status().round;
  scene.settle();
  scene.add_agent(0);
  scene.add_agent(1).round = 1000;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kFailed));
  EXPECT_EQ(condition(scene.status(), kFailed).reason, "TooManyRestarts");
}

TEST(Disagreement, IsJudgedOnceAllAgentsWereHeardAndOnlyOfThisJob) {
  Scene scene(2);
  scene.train();
  scene.agent(1).round = 8;
  scene.agent(0).job_uid = "another job's";  // as if a pod of another job had its address now
  EXPECT_TRUE(written(scene, scene.plan()) == scene.status());
  scene.agent(0).job_uid = scene.seen.job.metadata.uid;
  EXPECT_TRUE(is_decision(scene.plan()));
  scene.agent(1).job_uid = "another job's";
  EXPECT_EQ(written(scene, scene.plan()).restarts, 0);
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 1u) << "its agent must receive the round";
}

}  // namespace
}  // namespace lockstep::plan
