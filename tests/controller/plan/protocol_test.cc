#include <gtest/gtest.h>

#include "controller/plan/conditions.h"
#include "controller/plan/plan.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;

// Returns the protocol version of each assignment that the plan sends.
std::vector<int64_t> versions_sent(const Scene& scene) {
  std::vector<int64_t> versions;
  for (const PutAssignment& put : only<PutAssignment>(scene.plan())) {
    versions.push_back(put.assignment->protocol);
  }
  return versions;
}

// A formed job whose agents have answered in these versions and carry out nothing yet; -1: not
// answered.
Scene answered_in(const std::vector<int64_t>& versions) {
  Scene scene(static_cast<int64_t>(versions.size()));
  scene.form();
  for (size_t i = 0; i < versions.size(); ++i) {
    if (versions[i] < 0) continue;
    AgentState& state = scene.add_agent(static_cast<int64_t>(i));
    state = {.protocol = versions[i], .job_uid = state.job_uid};
  }
  return scene;
}

TEST(ProtocolVersions, AssignmentsAreInOneThatEveryAgentOfTheRoundSpeaks) {
  EXPECT_EQ(versions_sent(answered_in({2, 2})), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(versions_sent(answered_in({1, 2})), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(versions_sent(answered_in({2, -1})), (std::vector<int64_t>{1, 1})) << "not known yet";
}

TEST(ProtocolVersions, AnAgentOfOneThatIsNotServedKeepsItsPodAndTheStatusSaysWhatToDo) {
  const std::map<int64_t, std::string> cases = {{kProtocolNewest + 1, "AgentTooNew"},
                                                {kProtocolOldest - 1, "AgentTooOld"}};
  for (const auto& [protocol, reason] : cases) {
    SCOPED_TRACE(protocol);
    Scene scene(2);
    scene.train();
    scene.agent(1) = {.protocol = protocol};
    scene.settle();
    for (int i = 0; i < 10; ++i) {
      scene.advance(seconds(60));
      for (auto& [uid, agent] : scene.seen.agents) agent.last_heard = scene.now;
      EXPECT_TRUE(scene.plan().actions.empty())
          << "the message is written once, and no assignment is sent";
    }
    EXPECT_EQ(scene.status().members, "1,1");
    const Condition& ready = condition(scene.status(), kReady);
    EXPECT_EQ(ready.reason, reason);
    const std::string both = "protocol version " + std::to_string(protocol) +
                             ", but the controller supports versions 1 to " +
                             std::to_string(kProtocolNewest);
    EXPECT_NE(ready.message.find(both), std::string::npos) << ready.message;
    EXPECT_NE(ready.message.find("suspended and resumed"), std::string::npos) << ready.message;
  }
}

TEST(ProtocolVersions, ARoundWaitsForAnAgentOfOneThatIsNotServed) {
  const Scene scene = answered_in({kProtocolNewest + 1, 2});
  const auto told = only<PutAssignment>(scene.plan());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].node_index, 1);
  EXPECT_EQ(told[0].assignment->protocol, 2);
}

TEST(ProtocolVersions, AtTheEndAPodWhoseAgentCanNotBeToldIsDeleted) {
  Scene scene(2);
  scene.train();
  for (int64_t i = 0; i < 2; ++i) scene.agent(i).phase = "Completed";
  scene.settle();
  ASSERT_TRUE(is_true(scene.status(), kComplete));
  scene.agent(1) = {.protocol = kProtocolNewest + 1};
  const auto expect_the_end = [&] {
    const Plan plan = scene.plan();
    ASSERT_EQ(only<DeletePod>(plan).size(), 1u);
    EXPECT_EQ(only<DeletePod>(plan)[0].name, "job-worker-1-1");
    ASSERT_EQ(only<PutAssignment>(plan).size(), 1u);
    EXPECT_EQ(only<PutAssignment>(plan)[0].node_index, 0);
  };
  expect_the_end();
  scene.agent(1) = {};
  scene.seen.agents["job-worker-1-1-uid"].refuses_token = true;
  expect_the_end();
}

// A job whose agents know no rules about losses trains; then it gets one.
struct NewRule : Scene {
  NewRule() : Scene(2) {
    train();
    for (int64_t i = 0; i < 2; ++i) agent(i).protocol = kProtocolWithLossRules - 1;
    settle();
    seen.job.spec.failure.rules = {{.event = "LossNotFinite", .action = "SkipBatch"}};
    ++seen.job.metadata.generation;
  }
};

TEST(ProtocolVersions, ARuleThatAgentsDoNotKnowLeavesTheRunningRoundAlone) {
  NewRule scene;
  const Plan plan = scene.plan();
  EXPECT_TRUE(only<PutAssignment>(plan).empty());
  ASSERT_EQ(only<EmitEvent>(plan).size(), 1u);
  EXPECT_EQ(only<EmitEvent>(plan)[0].reason, "AgentTooOld");
  scene.settle();
  EXPECT_TRUE(scene.plan().actions.empty()) << "it is told once";
  const Condition& ready = condition(scene.status(), kReady);
  EXPECT_EQ(ready.status, "True");
  EXPECT_EQ(ready.message,
            "the agent of job-worker-0-1 speaks protocol version 8, but the next round has rules "
            "about losses, which needs version 9. The next round starts once the job is suspended "
            "and resumed, which recreates its pods with the controller's version of Lockstep. If "
            "spec.image has an older version, change it meanwhile");
  EXPECT_EQ(scene.status().state, "Running");
  scene.seen.job.spec.failure.rules.clear();
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kReady).message, "");
}

TEST(ProtocolVersions, ARuleThatAgentsDoNotKnowKeepsTheNextRoundFromStarting) {
  NewRule scene;
  scene.settle();
  scene.fail_worker(1, 139, 0.5);
  scene.settle();
  ASSERT_EQ(scene.status().round, 2);
  EXPECT_TRUE(only<PutAssignment>(scene.plan()).empty());
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kReady).reason, "AgentTooOld");
  EXPECT_EQ(condition(scene.status(), kReady).status, "False");
  scene.seen.job.spec.failure.rules.clear();
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 2u);
}

TEST(ProtocolVersions, ARuleThatAgentsDoNotKnowDoesNotKeepThemFromExitingAtTheEnd) {
  NewRule scene;
  for (int64_t i = 0; i < 2; ++i) scene.agent(i).phase = "Completed";
  scene.settle();
  ASSERT_TRUE(is_true(scene.status(), kComplete));
  const Plan plan = scene.plan();
  EXPECT_TRUE(only<DeletePod>(plan).empty()) << "their logs would be gone";
  ASSERT_EQ(only<PutAssignment>(plan).size(), 2u);
  const Assignment& exit = *only<PutAssignment>(plan)[0].assignment;
  EXPECT_EQ(exit.action, "Exit");
  EXPECT_EQ(exit.losses, LossRules());
  EXPECT_LT(exit.protocol, kProtocolWithLossRules);
}

}  // namespace
}  // namespace lockstep::plan
