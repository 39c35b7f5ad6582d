// Rounds that leave out nodes.
#include <gtest/gtest.h>

#include "common/api/worker_config.h"
#include "controller/plan/names.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using Nodes = std::vector<int64_t>;

Nodes without_node_1(const Pass&) {
  return {0, 2};
}
Nodes node_2_alone(const Pass&) {
  return {2};
}
// As an elastic job would have it: those that run, if any does.
Nodes those_that_run(const Pass& pass) {
  Nodes nodes;
  for (const PodView* pod : pass.current) {
    if (pod != nullptr && pod->phase == "Running") nodes.push_back(pod->node_index);
  }
  return nodes.empty() ? members_of_round(pass) : nodes;
}

// Three nodes, of which nodes 0 and 2 are in the round. Ranks 0 and 1 train there.
struct LeftOut : Scene {
  explicit LeftOut(RoundChoice choice = without_node_1) : Scene(3) {
    choose = choice;
    seen.job.spec.train->batch.global = 6;
    form();
    add_round_agent(0, 0);
    add_round_agent(2, 1);
    add_agent(1) = {.job_uid = seen.job.metadata.uid, .node_index = 1, .incarnation = 1};
    settle();
  }
  void add_round_agent(int64_t index, int64_t rank) { add_agent(index).workers[0].rank = rank; }
};

Nodes told(const Plan& plan) {
  Nodes nodes;
  for (const PutAssignment& put : only<PutAssignment>(plan)) nodes.push_back(put.node_index);
  return nodes;
}

TEST(LeftOutNodes, TheRoundIsRecordedWithItsNodesAndTheOthersAreTold) {
  Scene scene(3);
  scene.choose = without_node_1;
  scene.seen.job.spec.train->batch.global = 6;
  scene.form();
  EXPECT_EQ(scene.status().members, "1,1,1");
  ASSERT_TRUE(scene.status().rendezvous);
  EXPECT_EQ(scene.status().rendezvous->nodeIndices, "0,2");
  EXPECT_EQ(scene.status().rendezvous->worldSize, 2);
  EXPECT_EQ(told(scene.plan()), Nodes{}) << "their agents have not answered yet";
  for (int64_t i = 0; i < 3; ++i) {
    scene.add_agent(i) = {.job_uid = scene.seen.job.metadata.uid, .node_index = i};
  }
  const Plan plan = scene.plan();
  EXPECT_EQ(told(plan), (Nodes{0, 2}));
  const Assignment& sent = *only<PutAssignment>(plan)[0].assignment;
  EXPECT_EQ(sent.protocol, kProtocolNewest);
  EXPECT_EQ(place_of(sent.world, 2), 1);
  EXPECT_EQ(place_of(sent.world, 1), std::nullopt);
}

TEST(LeftOutNodes, AreNeitherMissingNorAwaited) {
  LeftOut scene;
  EXPECT_EQ(scene.status().state, "Running");
  scene.seen.pods[1].phase = "Pending";
  scene.seen.pods[1].ip = "";
  scene.seen.pods[1].scheduled = false;
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kReady).reason, "AllPodsRun");
  EXPECT_EQ(condition(scene.status(), kPodsScheduled).reason, "AllScheduled");
  EXPECT_EQ(scene.status().state, "Running");
  scene.advance(std::chrono::hours(1));
  for (const int64_t i : {0, 2}) {
    scene.seen.agents[worker_pod_name("job", i, 1) + "-uid"].last_heard = scene.now;
  }
  scene.settle();
  EXPECT_FALSE(scene.status().lastFailure) << "the silent agent is not in the round";
  for (const int64_t i : {0, 2}) {
    scene.agent(i).phase = "Completed";
    scene.agent(i).workers[0].running = false;
    scene.agent(i).workers[0].reason = "Completed";
  }
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kComplete));
  EXPECT_EQ(condition(scene.status(), kComplete).message, "all 2 nodes completed round 1");
}

TEST(LeftOutNodes, AControllerThatStartsGoesOnFromStatusAlone) {
  LeftOut scene;
  Scene restarted(3);
  restarted.choose = without_node_1;
  restarted.seen = scene.seen;
  restarted.seen.agents.clear();
  EXPECT_TRUE(only<WriteStatus>(restarted.plan()).empty());
  EXPECT_EQ(told(restarted.plan()), Nodes{});
  restarted.seen.agents = scene.seen.agents;
  EXPECT_TRUE(restarted.plan().actions.empty()) << restarted.plan().why;
}

TEST(LeftOutNodes, ComeBackWhenTheyAreChosenAgainAndRun) {
  LeftOut scene;
  const std::string hash = scene.status().worldHash;
  scene.choose = members_of_round;
  scene.seen.pods[1].phase = "Pending";
  scene.settle();
  EXPECT_EQ(scene.status().worldHash, hash);
  EXPECT_EQ(condition(scene.status(), kReady).reason, "PodsMissing");
  scene.seen.pods[1].phase = "Running";
  EXPECT_TRUE(is_decision(scene.plan()));
  scene.settle();
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().rendezvous->worldSize, 3);
  EXPECT_EQ(scene.status().rendezvous->nodeIndices, "");
  EXPECT_EQ(scene.status().members, "1,1,1");
  EXPECT_EQ(scene.status().restarts, 0);
  EXPECT_EQ(told(scene.plan()), (Nodes{0, 1, 2}));
}

TEST(LeftOutNodes, ALostPodIsLeftOutAtOnceAndComesBackWhenItsSuccessorRuns) {
  Scene scene(3);
  scene.choose = those_that_run;
  scene.seen.job.spec.train->batch.global = 6;
  scene.train();
  scene.seen.pods[1].phase = "Failed";
  scene.seen.pods[1].reason = "Evicted";
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,2,1");
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_NE(scene.status().worldHash, "") << "the round forms without the lost node";
  EXPECT_EQ(scene.status().rendezvous->nodeIndices, "0,2");
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(only<CreatePod>(scene.plan()).size(), 1u);
  scene.add_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.status().round, 3);
  EXPECT_EQ(scene.status().rendezvous->worldSize, 3);
}

TEST(LeftOutNodes, ARankIsOnTheNodeThatHasItsPlace) {
  LeftOut scene;
  scene.fail_worker(0, kExitPeerHung, 0.1);
  scene.agent(0).workers[0].suspect_rank = 1;
  scene.advance(scene.limits.culprit_wait);
  for (auto& [uid, agent] : scene.seen.agents) agent.last_heard = scene.now;
  scene.settle();
  ASSERT_TRUE(scene.status().lastFailure);
  EXPECT_EQ(scene.status().lastFailure->rank, 1);
  EXPECT_EQ(scene.status().lastFailure->nodeIndex, 2);
  EXPECT_EQ(scene.status().lastFailure->node, "machine-2");
  EXPECT_EQ(scene.status().rendezvous->nodeIndices, "0,2") << "the next round has the same nodes";
}

TEST(LeftOutNodes, RanksFollowThePlacesOfNodesWithSeveralProcesses) {
  Scene scene(4);
  scene.choose = [](const Pass&) { return Nodes{0, 2, 3}; };
  scene.seen.job.spec.processesPerNode = 2;
  scene.seen.job.spec.train->batch.global = 24;
  scene.form();
  ASSERT_EQ(scene.status().rendezvous->nodeIndices, "0,2,3");
  const Pass pass = make_pass(scene.seen, scene.now, scene.limits, scene.choose);
  const Nodes expected = {0, 0, 2, 2, 3, 3, -1};
  for (int64_t rank = 0; rank < std::ssize(expected); ++rank) {
    EXPECT_EQ(pass.node_of_rank(rank), expected[static_cast<size_t>(rank)]) << rank;
  }
  EXPECT_EQ(pass.node_of_rank(-1), -1);
}

// All three nodes trained in round 4, which has ended. The next one is to leave out node 1, whose
// agent has not answered yet.
struct AfterARound : Scene {
  AfterARound() : Scene(3) {
    choose = without_node_1;
    seen.job.spec.train->batch.global = 6;
    settle();
    status().round = 4;
    for (int64_t i = 0; i < 3; ++i) add_pod(i);
    seen.agents[seen.pods[1].uid].last_heard = now - std::chrono::seconds(5);
  }
  AgentView& agent_1() { return seen.agents[seen.pods[1].uid]; }
  bool begins() const { return !written(*this, plan()).worldHash.empty(); }
};

TEST(OlderRounds, ANodeThatMayRunOneHoldsUpTheNextUntilItsAgentHasBeenSilentForLong) {
  AfterARound scene;
  EXPECT_FALSE(scene.begins());
  const TimePoint end = scene.agent_1().last_heard + scene.limits.agent_silence;
  EXPECT_EQ(scene.plan().requeue_at, end) << "silence causes no event";
  scene.seen.suspect_own_network = true;
  EXPECT_EQ(scene.plan().requeue_at,
            scene.agent_1().last_heard + scene.limits.agent_silence_if_suspect);
  scene.seen.suspect_own_network = false;
  scene.advance(end - scene.now);
  EXPECT_TRUE(scene.begins());
  EXPECT_EQ(scene.plan().requeue_at, std::nullopt);
  scene.settle();
  EXPECT_EQ(scene.status().rendezvous->nodeIndices, "0,2");
}

TEST(OlderRounds, ANodeThatCanHaveNoneHoldsNothingUp) {
  AfterARound fresh;
  fresh.seen.pods[1].created_in_round = 4;
  EXPECT_TRUE(fresh.begins()) << "its pod was made after the round";
  AfterARound refusing;
  refusing.agent_1().refuses_token = true;
  EXPECT_TRUE(refusing.begins()) << "it never got an assignment";
  AfterARound ended;
  ended.seen.pods[1].phase = "Pending";
  EXPECT_TRUE(ended.begins()) << "its pod does not run";
  AfterARound unasked;
  unasked.seen.agents.clear();
  EXPECT_FALSE(unasked.begins()) << "nobody has asked it";
  EXPECT_EQ(unasked.plan().requeue_at, std::nullopt) << "the answer is an event";
}

TEST(OlderRounds, ANodeThatRunsOneIsInTheNextRoundAndLeftOutOnlyOnceItHasGotIt) {
  AfterARound scene;
  scene.agent_1().state =
      std::make_shared<AgentState>(AgentState{.job_uid = scene.seen.job.metadata.uid, .round = 4});
  AgentState& state = Scene::edit(scene.agent_1());
  state.workers.push_back({.rank = 1, .running = true});
  scene.settle();
  EXPECT_EQ(scene.status().round, 5);
  EXPECT_EQ(scene.status().rendezvous->nodeIndices, "") << "all three";
  for (const int64_t i : {0, 2}) scene.add_agent(i);
  scene.settle();
  EXPECT_EQ(scene.status().round, 5);
  state.round = 5;
  state.hash = scene.status().worldHash;
  scene.settle();
  EXPECT_EQ(scene.status().round, 6);
  EXPECT_EQ(scene.status().rendezvous->nodeIndices, "0,2");
}

TEST(LeftOutNodes, ASuspectThatNoNodeHasBlamesTheReporter) {
  LeftOut scene;
  scene.fail_worker(0, kExitPeerLost, 10);
  scene.agent(0).workers[0].suspect_rank = 2;
  scene.settle();
  ASSERT_TRUE(scene.status().lastFailure);
  EXPECT_EQ(scene.status().lastFailure->rank, 0);
  EXPECT_EQ(scene.status().lastFailure->nodeIndex, 0);
}

TEST(LeftOutNodes, ProgressIsThatOfTheNodeOfRankZero) {
  LeftOut scene(node_2_alone);
  EXPECT_EQ(scene.status().rendezvous->nodeIndices, "2");
  EXPECT_EQ(scene.status().rendezvous->host, "10.0.0.3");
  scene.agent(2).progress.emplace().step = 12;
  scene.agent(2).last_checkpoint = CheckpointStatus{.step = 10, .path = "/c"};
  scene.settle();
  ASSERT_TRUE(scene.status().progress);
  EXPECT_EQ(scene.status().progress->step, 12);
  EXPECT_EQ(scene.status().lastCheckpoint->step, 10);
}

TEST(LeftOutNodes, AStuckRanksMachineIsThatOfItsPlace) {
  LeftOut scene;
  scene.agent(0).workers[0].wait =
      WorkerWait{.operation = "all_reduce #17", .ranks = "0-1", .group_size = 2, .waits_for = {1}};
  scene.settle();
  const std::string message = condition(scene.status(), kStuck).message;
  EXPECT_EQ(message.substr(0, 20), "rank 1 on machine-2 ") << message;
}

TEST(LeftOutNodes, AnAgentThatDoesNotKnowSuchRoundsIsReportedAndNoneIsTold) {
  for (const int64_t protocol : {1, 2}) {
    LeftOut scene;
    for (int64_t i = 0; i < 3; ++i) {
      scene.agent(i) = {.protocol = i == 2 ? protocol : kProtocolNewest,
                        .job_uid = scene.seen.job.metadata.uid};
    }
    const Plan plan = scene.plan();
    EXPECT_EQ(told(plan), Nodes{});
    const auto events = only<EmitEvent>(plan);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].reason, "AgentTooOld");
    scene.settle();
    EXPECT_TRUE(scene.plan().actions.empty()) << "it is reported once";
    const Condition& ready = condition(scene.status(), kReady);
    EXPECT_EQ(ready.reason, "AgentTooOld");
    EXPECT_EQ(ready.message,
              "the agent of job-worker-2-1 speaks protocol version " + std::to_string(protocol) +
                  ", but the round leaves out nodes, which needs version 3. The round starts once "
                  "the job is suspended and resumed, which recreates its pods with the "
                  "controller's version of Lockstep. If spec.image has an older version, change "
                  "it meanwhile");
    scene.agent(2).protocol = kProtocolNewest;
    EXPECT_EQ(told(scene.plan()), (Nodes{0, 2}));
  }
}

TEST(LeftOutNodes, AnAgentThatDoesNotEncryptGetsNoEncryptedRound) {
  LeftOut scene;
  scene.seen.job.spec.security.encryption = "required";
  for (int64_t i = 0; i < 3; ++i) {
    scene.agent(i) = {.protocol = i == 2 ? 6 : kProtocolNewest,
                      .job_uid = scene.seen.job.metadata.uid};
  }
  EXPECT_EQ(told(scene.plan()), Nodes{});
  scene.settle();
  const Condition& ready = condition(scene.status(), kReady);
  EXPECT_EQ(ready.reason, "AgentTooOld");
  EXPECT_NE(ready.message.find("but the round leaves out nodes, and encrypts its traffic, which "
                               "needs version 7"),
            std::string::npos)
      << ready.message;
}

TEST(LeftOutNodes, AnOldAgentThatIsLeftOutIsNoTrouble) {
  for (const int64_t node : {1, 2}) {
    LeftOut scene;
    scene.agent(node).protocol = kProtocolNewest + 1;
    scene.settle();
    EXPECT_EQ(condition(scene.status(), kReady).reason, node == 1 ? "AllPodsRun" : "AgentTooNew");
  }
}

TEST(LeftOutNodes, AtTheEndTheyAndAgentsThatAreTooOldAreDeleted) {
  LeftOut scene;
  for (const int64_t i : {0, 2}) {
    scene.agent(i).phase = "Completed";
    scene.agent(i).workers[0].running = false;
    scene.agent(i).workers[0].reason = "Completed";
  }
  scene.settle();
  ASSERT_TRUE(is_true(scene.status(), kComplete));
  scene.agent(2).protocol = 2;
  const Plan plan = scene.plan();
  EXPECT_EQ(told(plan), Nodes{0});
  ASSERT_EQ(only<DeletePod>(plan).size(), 2u);
  EXPECT_EQ(only<DeletePod>(plan)[0].name, "job-worker-1-1");
  EXPECT_EQ(only<DeletePod>(plan)[1].name, "job-worker-2-1");
}

// Plans without validation, which refuses pipelines in this version.
TEST(Layouts, OfAJobWhoseAgentIsTooOldAreReported) {
  struct Case {
    void (*change)(ParallelismSpec&);
    std::string words;
    int64_t needed;
  };
  const Case cases[] = {
      {[](ParallelismSpec& spec) { spec.pipeline = 2; }, "runs a pipeline", 5},
      {[](ParallelismSpec& spec) { spec.tensor = 2; }, "shares layers", 5},
      {[](ParallelismSpec& spec) {
         spec.tensor = 2;
         spec.sequenceParallel = true;
       },
       "divides sequences, and shares layers", 5},
      {[](ParallelismSpec& spec) { spec.sharding = "optimizer"; }, "shards optimizer", 4},
      {[](ParallelismSpec& spec) {
         spec.sharding = "parameters";
         spec.offload = "optimizer";
       },
       "shards parameters, and offloads optimizer", 4},
      {[](ParallelismSpec& spec) { spec.reducePrecision = "bf16"; }, "reduces in bf16", 4},
      {[](ParallelismSpec& spec) { spec.exchange = "firstRank"; }, "exchanges by firstRank", 4}};
  for (const auto& [change, words, needed] : cases) {
    Scene scene(2);
    scene.train();
    change(scene.seen.job.spec.parallelism);
    scene.status().fixed.clear();
    scene.agent(0).protocol = needed;
    scene.agent(1).protocol = needed - 1;
    std::vector<Policy> policies;
    for (const Policy policy : all_policies()) {
      if (policy != validation) policies.push_back(policy);
    }
    const auto settle = [&] {
      for (int i = 0; i < 3; ++i) {
        const Plan plan = plan_by(policies, scene.seen, scene.now, scene.limits);
        EXPECT_EQ(told(plan), Nodes{});
        for (const WriteStatus& write : only<WriteStatus>(plan)) scene.status() = write.status;
      }
    };
    settle();
    EXPECT_EQ(scene.status().round, 2);
    const Condition& ready = condition(scene.status(), kReady);
    EXPECT_EQ(ready.reason, "AgentTooOld");
    EXPECT_NE(ready.message.find("speaks protocol version " + std::to_string(needed - 1) +
                                 ", but the round " + words + ", which needs version " +
                                 std::to_string(needed)),
              std::string::npos)
        << ready.message;
    scene.agent(1).protocol = needed;
    EXPECT_EQ(told(plan_by(policies, scene.seen, scene.now, scene.limits)), (Nodes{0, 1}));
  }
}

}  // namespace
}  // namespace lockstep::plan
