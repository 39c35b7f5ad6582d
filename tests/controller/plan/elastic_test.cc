// Jobs that train with fewer nodes while pods are missing.
#include <gtest/gtest.h>

#include "controller/plan/elastic.h"
#include "controller/plan/names.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;
using Nodes = std::vector<int64_t>;

struct Elastic : Scene {
  explicit Elastic(int64_t nodes = 4, int64_t global = 12) : Scene(nodes) {
    seen.job.spec.elastic = ElasticSpec{.min = 2, .max = 8};
    seen.job.spec.train->batch.global = global;
    seen.job.spec.checkpoint.memory.emplace();
  }

  // Then only even numbers of ranks can train.
  void use_two_stages() {
    seen.job.spec.train->model = {.layers = 2, .width = 16, .heads = 2, .context = 16};
    seen.job.spec.parallelism.pipeline = 2;
  }
  // All nodes train.
  void begin() {
    train();
    settle();
  }
  PodView& pod(int64_t index) {
    for (PodView& pod : seen.pods) {
      if (pod.node_index == index && pod.live()) return pod;
    }
    return seen.pods.at(0);
  }
  void lose(int64_t index) {
    pod(index).phase = "Failed";
    pod(index).reason = "Evicted";
    settle();
  }
  PodView& add_waiting_pod(int64_t index, int64_t incarnation) {
    PodView& pod = add_pod(index, incarnation);
    pod.phase = "Pending";
    pod.ip = pod.node_name = "";
    pod.scheduled = false;
    pod.created_in_round = status().round;
    return pod;
  }
  void run(PodView& pod) {
    pod.phase = "Running";
    pod.ip = "10.0.1." + std::to_string(pod.node_index);
    pod.scheduled = true;
    pod.unscheduled_reason = "";
  }
  // The agent of a new pod answers.
  AgentState& answer(int64_t index, int64_t incarnation) {
    return add_agent(index) = {
               .job_uid = seen.job.metadata.uid, .node_index = index, .incarnation = incarnation};
  }
  // The agents of a new round train.
  void train_round() {
    const Nodes nodes = round();
    for (size_t place = 0; place < nodes.size(); ++place) {
      add_agent(nodes[place]).workers[0].rank = static_cast<int64_t>(place);
    }
    settle();
  }
  Nodes round() { return make_pass(seen, now, limits, choose).round_nodes; }
};

TEST(Elastic, TheFirstRoundWaitsForPodsThatAreStartingAndNotForThoseWithoutRoom) {
  Elastic scene;
  scene.settle();
  for (int64_t i = 0; i < 4; ++i) scene.add_waiting_pod(i, 1);
  for (const int64_t i : {0, 1, 2}) scene.run(scene.pod(i));
  scene.settle();
  EXPECT_EQ(scene.status().worldHash, "") << "node 3 may be about to start";
  scene.pod(3).unscheduled_reason = "0/3 nodes are available";
  scene.settle();
  EXPECT_EQ(scene.status().worldHash, "") << "agents may be too old for a round of three";
  for (const int64_t i : {0, 1, 2}) scene.answer(i, 1);
  scene.settle();
  EXPECT_NE(scene.status().worldHash, "");
  EXPECT_EQ(scene.round(), (Nodes{0, 1, 2}));
  EXPECT_EQ(scene.status().rendezvous->worldSize, 3);
}

TEST(Elastic, ALostNodeIsLeftOutAtOnceAndComesBack) {
  Elastic scene;
  scene.begin();
  EXPECT_EQ(scene.status().rendezvous->worldSize, 4);
  scene.lose(1);
  EXPECT_EQ(scene.status().members, "1,2,1,1");
  EXPECT_EQ(only<CreatePod>(scene.plan()).size(), 1u);
  scene.add_waiting_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{0, 2, 3}));
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().rendezvous->worldSize, 3);
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 3u);
  scene.train_round();
  EXPECT_EQ(scene.status().state, "Running");

  scene.run(scene.pod(1));
  scene.settle();
  EXPECT_EQ(scene.status().round, 2) << "its agent has not answered";
  scene.answer(1, 2);
  scene.settle();
  EXPECT_EQ(scene.status().round, 3);
  EXPECT_EQ(scene.status().rendezvous->worldSize, 4);
  EXPECT_EQ(scene.status().restarts, 1) << "growing is no restart";
}

TEST(Elastic, NodesThatComeBackTogetherAreOneChangeOfSize) {
  Elastic scene;
  scene.begin();
  for (const int64_t i : {1, 2}) {
    scene.pod(i).phase = "Failed";
    scene.pod(i).reason = "Evicted";
  }
  scene.settle();
  for (const int64_t i : {1, 2}) scene.add_waiting_pod(i, 2).scheduled = true;
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{0, 3}));
  scene.train_round();
  for (const int64_t i : {1, 2}) {
    scene.run(scene.pod(i));
    scene.answer(i, 2);
    scene.settle();
    EXPECT_EQ(scene.round(), i == 1 ? (Nodes{0, 3}) : (Nodes{0, 1, 2, 3}));
  }
}

TEST(Elastic, TheWorldIsTheLargestThatTheLayoutAllows) {
  Elastic scene;
  scene.use_two_stages();
  scene.begin();
  scene.lose(1);
  scene.add_waiting_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{0, 2}));
  scene.train_round();
  EXPECT_EQ(scene.status().state, "Running");
  EXPECT_EQ(scene.plan().actions.size(), 0u) << scene.plan().why;
}

TEST(Elastic, TheBatchNeedNotDivideTheWorld) {
  Elastic scene(4, 8);
  scene.begin();
  scene.lose(1);
  scene.add_waiting_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{0, 2, 3}));
}

TEST(Elastic, WithFewerThanTheLeastItWaits) {
  Elastic scene;
  scene.begin();
  for (const int64_t i : {0, 1, 2}) {
    scene.pod(i).phase = "Failed";
    scene.pod(i).reason = "Evicted";
  }
  scene.settle();
  for (const int64_t i : {0, 1, 2}) scene.add_waiting_pod(i, 2);
  scene.settle();
  EXPECT_EQ(scene.status().worldHash, "");
  scene.run(scene.pod(2));
  scene.answer(2, 2);
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{2, 3}));
  EXPECT_NE(scene.status().worldHash, "");
}

TEST(Elastic, ASilentNodeOfSeveralIsLeftOutBeforeItIsGivenUp) {
  Elastic scene;
  scene.begin();
  scene.advance(scene.limits.agent_healthy_within + seconds(1));
  for (const int64_t i : {0, 2}) {
    scene.seen.agents[worker_pod_name("job", i, 1) + "-uid"].last_heard = scene.now;
  }
  scene.lose(1);
  scene.add_waiting_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{0, 2}));
}

TEST(Elastic, ASilentNodeThatIsLeftOutIsReplacedWithoutEndingTheRound) {
  Elastic scene;
  scene.begin();
  const auto hear_all_but_3 = [&] {
    for (auto& [uid, view] : scene.seen.agents) {
      if (uid.find("worker-3-1") == std::string::npos) view.last_heard = scene.now;
    }
  };
  scene.advance(scene.limits.agent_healthy_within + seconds(1));
  hear_all_but_3();
  scene.lose(1);
  scene.add_waiting_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{0, 2}));
  const std::string hash = scene.status().worldHash;
  scene.advance(scene.limits.agent_silence);
  hear_all_but_3();
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,2,1,2");
  EXPECT_EQ(scene.status().worldHash, hash);
  EXPECT_EQ(scene.status().restarts, 1) << "the round goes on";
}

TEST(Elastic, APodThatFailsBeforeItJoinsBacksOffAndDoesNotCount) {
  Elastic scene;
  scene.begin();
  scene.lose(1);
  scene.add_waiting_pod(1, 2);
  scene.settle();
  scene.train_round();
  for (int64_t incarnation = 2; incarnation < 6; ++incarnation) {
    scene.pod(1).phase = "Failed";
    scene.settle();
    EXPECT_EQ(scene.status().lastFailure->attempt, incarnation - 1);
    EXPECT_EQ(scene.status().restarts, 1);
    EXPECT_EQ(scene.round(), (Nodes{0, 2, 3}));
    EXPECT_TRUE(is_true(scene.status(), kRunning));
    const bool waits = only<CreatePod>(scene.plan()).empty();
    EXPECT_EQ(waits, incarnation > 2) << "after the first it backs off";
    scene.add_waiting_pod(1, incarnation + 1);
  }
}

// The copy of a node's states is on the next one in the circle.
TEST(Elastic, NoOnlyCopyOfAStateIsLeftOut) {
  for (int64_t lost = 0; lost < 4; ++lost) {
    SCOPED_TRACE(lost);
    Elastic scene;
    scene.use_two_stages();
    scene.begin();
    scene.lose(lost);
    scene.add_waiting_pod(lost, 2);
    scene.settle();
    EXPECT_EQ(scene.round(), (Nodes{(lost + 1) % 2, (lost + 1) % 2 + 2}));
  }
}

TEST(Elastic, ASurvivorIsPreferredToANewPod) {
  Elastic scene;
  scene.use_two_stages();
  scene.begin();
  scene.lose(0);
  scene.run(scene.add_waiting_pod(0, 2));
  scene.answer(0, 2);
  scene.lose(2);
  scene.add_waiting_pod(2, 2);
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{1, 3}));
}

TEST(Elastic, ANodeThatDoesNotAnswerIsNotWaitedFor) {
  Elastic scene;
  scene.begin();
  scene.lose(1);
  scene.run(scene.add_waiting_pod(1, 2));
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{0, 2, 3}));
}

TEST(Elastic, APodThatStartsForTooLongIsNotWaitedFor) {
  Elastic scene;
  scene.settle();
  for (int64_t i = 0; i < 4; ++i) {
    PodView& pod = scene.add_waiting_pod(i, 1);
    pod.seen_at = scene.now;
    pod.scheduled = true;
    if (i == 3) continue;
    scene.run(pod);
    scene.answer(i, 1);
  }
  scene.settle();
  EXPECT_EQ(scene.status().worldHash, "");
  EXPECT_LE(scene.plan().requeue_at, scene.now + scene.limits.elastic_start_wait);
  scene.advance(scene.limits.elastic_start_wait);
  for (auto& [uid, view] : scene.seen.agents) view.last_heard = scene.now;
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{0, 1, 2}));
}

TEST(Elastic, TheMicroBatchesAreThoseOfTheWishedNodes) {
  Elastic scene(4, 16);
  scene.begin();
  scene.lose(1);
  scene.add_waiting_pod(1, 2);
  scene.settle();
  const auto sent = only<PutAssignment>(scene.plan());
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent[0].assignment->train->batch.micro, 4);
}

TEST(Elastic, ACommandStartsAgainInTheSmallerWorld) {
  Elastic scene;
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.checkpoint = {};
  scene.seen.job.spec.command = {"a"};
  scene.begin();
  scene.lose(1);
  scene.add_waiting_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.round(), (Nodes{0, 2, 3}));
  const auto sent = only<PutAssignment>(scene.plan());
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].assignment->world.world_size(), 3);
}

TEST(Elastic, AWorkersFailureIsARestartWithTheSameNodes) {
  Elastic scene;
  scene.begin();
  scene.fail_worker(1, 139, 0.5);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->action, "RestartInPlace");
  EXPECT_EQ(scene.round(), (Nodes{0, 1, 2, 3}));
}

TEST(Elastic, WithAnAgentThatKnowsNoGapsALossIsWaitedFor) {
  Elastic scene;
  scene.begin();
  scene.agent(0).protocol = 2;
  scene.lose(1);
  scene.add_waiting_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.status().worldHash, "");
  EXPECT_EQ(scene.round(), (Nodes{0, 1, 2, 3}));
}

TEST(Elastic, WithoutItALossIsWaitedFor) {
  Elastic scene;
  scene.seen.job.spec.elastic.reset();
  scene.begin();
  scene.lose(1);
  scene.add_waiting_pod(1, 2);
  scene.settle();
  EXPECT_EQ(scene.status().worldHash, "");
  EXPECT_EQ(scene.round(), (Nodes{0, 1, 2, 3}));
}

}  // namespace
}  // namespace lockstep::plan
