// Servers that lose their pods: copies hold what they had until other pods take their places.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/plan/members.h"
#include "controller/plan/servers.h"
#include "tests/controller/plan/served_scene.h"

namespace lockstep::plan {
namespace {

PodView& pod_of_server(Scene& scene, int64_t index) {
  for (PodView& pod : scene.seen.pods) {
    const int64_t node = kWorkers + index;
    const int64_t member = members_from_text(scene.status().members)[static_cast<size_t>(node)];
    if (pod.node_index == node && pod.incarnation == member) return pod;
  }
  ADD_FAILURE() << "no pod of server " << index;
  return scene.seen.pods.front();
}

void lose_pod(Scene& scene, int64_t index) {
  PodView& pod = pod_of_server(scene, index);
  pod.phase = "Failed";
  pod.exit_code = 137;
}

void replace_pod(Scene& scene, int64_t index, int64_t incarnation, const std::string& ip) {
  run_next_pod(scene, kWorkers + index, incarnation, ip);
}

// The server's first pod is lost, everybody knows, and the next one is Pending.
void await_pod(Scene& scene, int64_t index) {
  lose_pod(scene, index);
  settle_all(scene);
  follow(scene, 2);
  replace_pod(scene, index, 2, "");
  pod_of_server(scene, index).phase = "Pending";
}

// The same, and the next one runs at 10.0.9.9.
void move_pod(Scene& scene, int64_t index) {
  await_pod(scene, index);
  replace_pod(scene, index, 2, "10.0.9.9");
  settle_all(scene);
}

// Returns the assignments that are sent, by node index.
std::map<int64_t, Assignment> sent(const Plan& plan) {
  std::map<int64_t, Assignment> assignments;
  for (const PutAssignment& put : only<PutAssignment>(plan)) {
    assignments[put.node_index] = *put.assignment;
  }
  return assignments;
}

TEST(ServerMoves, TheRoundGoesOnWithoutTheLostPod) {
  Scene scene = training(3);
  const std::string hash = scene.status().worldHash;
  lose_pod(scene, 1);
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().worldHash, hash);
  EXPECT_EQ(scene.status().serversView, "2:1,-2@1/10.0.0.4>2/,1");
  EXPECT_EQ(scene.status().members, "1,1,1,2,1");
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().lastFailure->action, "RecreatePod");
  EXPECT_EQ(scene.status().lastFailure->resumedStep, scene.status().lastFailure->step);
  EXPECT_TRUE(is_true(scene.status(), kRunning)) << "the workers train all the time";
  follow(scene, 2);
  const Plan plan = scene.plan();
  const auto created = only<CreatePod>(plan);
  ASSERT_EQ(created.size(), 1u);
  EXPECT_EQ(created.front().name, "job-server-3-2");
}

TEST(ServerMoves, TheOthersLearnOfTheLossBeforeAnyPodIsMadeOrStopped) {
  Scene scene = training(3);
  lose_pod(scene, 1);
  settle_all(scene);
  const Plan plan = scene.plan();
  EXPECT_TRUE(only<CreatePod>(plan).empty());
  EXPECT_TRUE(only<DeletePod>(plan).empty());
  const auto assignments = sent(plan);
  ASSERT_EQ(assignments.size(), 4u);
  EXPECT_FALSE(assignments.contains(kWorkers + 1));
  const Assignment& to_worker = assignments.at(0);
  EXPECT_EQ(to_worker.servers_view, "2:1,-2@1/10.0.0.4>2/,1");
  EXPECT_EQ(to_worker.hash, scene.status().worldHash);
  EXPECT_EQ(world_hash(to_worker.world), to_worker.hash);
  EXPECT_TRUE(assignment_from_json(to_json(to_worker)).ok());
}

TEST(ServerMoves, TheNextPodTakesThePlaceAndIsFilled) {
  Scene scene = training(3);
  move_pod(scene, 1);
  EXPECT_EQ(scene.status().serversView, "3:1,-3@1/10.0.0.4>2/10.0.9.9,1");
  const auto assignments = sent(scene.plan());
  ASSERT_TRUE(assignments.contains(kWorkers + 1));
  const Assignment& to_it = assignments.at(kWorkers + 1);
  EXPECT_EQ(to_it.servers_view, scene.status().serversView);
  EXPECT_EQ(to_it.world.members[kWorkers + 1].host, "10.0.0.4") << "as when the round began";
  EXPECT_EQ(to_it.world.members[kWorkers + 1].incarnation, 1);
  EXPECT_EQ(to_it.hash, scene.status().worldHash);
  follow(scene, 3);
  AgentState& state = scene.add_agent(kWorkers + 1);
  state.servers_view = 3;
  start_anew(scene, 1);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "4:1,+4@1/10.0.0.4>2/10.0.9.9,1");
  follow(scene, 4);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "5:1,5@1/10.0.0.4>2/10.0.9.9,1");
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().restarts, 1);
}

TEST(ServerMoves, ASilentAgentsPodIsLost) {
  Scene scene = training(3);
  scene.advance(std::chrono::seconds(60));
  for (auto& [uid, agent] : scene.seen.agents) {
    if (uid != pod_of_server(scene, 2).uid) agent.last_heard = scene.now;
  }
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "2:1,1,-2@1/10.0.0.5>2/");
  EXPECT_EQ(scene.status().lastFailure->reason, "AgentSilent");
  EXPECT_TRUE(only<DeletePod>(scene.plan()).empty()) << "the others must know first";
  follow(scene, 2);
  const auto deleted = only<DeletePod>(scene.plan());
  ASSERT_EQ(deleted.size(), 1u) << "what runs there must end";
  EXPECT_EQ(deleted.front().name, "job-server-4-1");
}

TEST(ServerMoves, ThePodThatTookThePlaceMayBeLostAsWell) {
  Scene scene = training(3);
  move_pod(scene, 1);
  lose_pod(scene, 1);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "4:1,-4@1/10.0.0.4>3/,1");
  EXPECT_EQ(scene.status().members, "1,1,1,3,1");
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().restarts, 2);
}

TEST(ServerMoves, APodThatIsLostAfterItsServerIsNoFurtherFailure) {
  Scene scene = training(3);
  scene.fail_worker(kWorkers + 1, 137, 0.1, "Signal");
  settle_all(scene);
  ASSERT_EQ(scene.status().serversView, "2:1,-2,1");
  lose_pod(scene, 1);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "3:1,-3@1/10.0.0.4>2/,1");
  EXPECT_EQ(scene.status().restarts, 1) << "such as a pod that is short of memory";
  follow(scene, 3);
  replace_pod(scene, 1, 2, "10.0.9.9");
  settle_all(scene);
  lose_pod(scene, 1);
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().restarts, 2) << "the next pod's loss counts";
}

TEST(ServerMoves, SeveralPodsOfOneLossAreOneFailure) {
  Scene scene = training(4);
  lose_pod(scene, 0);
  lose_pod(scene, 2);
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "2:-2@1/10.0.0.3>2/,1,-2@1/10.0.0.5>2/,1");
  EXPECT_EQ(scene.status().restarts, 1);
}

TEST(ServerMoves, ANewRoundBeginsWithWhatIsMissing) {
  struct Case {
    const char* name;
    int64_t copies;
    std::vector<int64_t> lost;
  };
  for (const Case& test : std::initializer_list<Case>{{"no copies", 0, {1}},
                                                      {"neighbours", 1, {0, 1}},
                                                      {"around the end", 1, {0, 2}},
                                                      {"a worker", 1, {-1}},
                                                      {"a worker and a server", 1, {-1, 1}}}) {
    SCOPED_TRACE(test.name);
    Scene scene = training(3, test.copies);
    for (const int64_t index : test.lost) lose_pod(scene, index);
    settle_all(scene);
    EXPECT_TRUE(scene.status().worldHash.empty());
    EXPECT_EQ(scene.status().lastFailure->action, "RecreatePod");
    EXPECT_EQ(scene.status().restarts, 1);
  }
}

TEST(ServerMoves, AreAsManyAsFitInStatus) {
  constexpr int64_t kMany = 300;
  const std::string host = "2001:db8:1234:5678:9abc:def0:1234:5678";
  Scene scene = training(kMany);
  ServersView view = first_servers_view(kMany);
  view.number = 2;
  const auto can_go_on = [&] {
    scene.status().serversView = text_of(view);
    EXPECT_TRUE(servers_view_from_text(scene.status().serversView).ok());
    return can_go_on_without_pods(make_pass(scene.seen, scene.now, scene.limits), {kWorkers});
  };
  for (ServerStanding& server : view.servers) {
    if (text_of(view).size() + 90 > kServersViewBytesMax) break;
    if (&server == &view.servers[200]) {
      EXPECT_TRUE(can_go_on());
    }
    server = {.since = 2, .move = ServerMove{.from = {1, host}, .to = {2, host}}};
  }
  EXPECT_FALSE(can_go_on());
}

TEST(ServerMoves, ANewRoundBeginsWithAgentsThatDoNotKnowMoves) {
  Scene scene = training(3);
  scene.agent(0).protocol = kProtocolWithCopies;
  lose_pod(scene, 1);
  settle_all(scene);
  EXPECT_TRUE(scene.status().worldHash.empty());
}

TEST(ServerMoves, APodThatIsStoppedEndsTheRound) {
  Scene scene = training(3);
  pod_of_server(scene, 1).terminating = true;
  settle_all(scene);
  EXPECT_TRUE(scene.status().worldHash.empty());
}

TEST(ServerMoves, APodThatRunsNothingMayBeStopped) {
  Scene scene = training(3);
  await_pod(scene, 1);
  pod_of_server(scene, 1).terminating = true;
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "3:1,-3@1/10.0.0.4>3/,1");
}

TEST(ServerMoves, AnAgentThatStopsEndsTheRoundBeforeItsPodIsSeenToBeStopped) {
  Scene scene = training(3);
  server(scene, 1).phase = "Stopping";
  settle_all(scene);
  EXPECT_TRUE(scene.status().worldHash.empty());
}

TEST(ServerMoves, RanksSaveAndLeaveWhileAServerAwaitsItsPod) {
  Scene scene = training(3);
  scene.seen.job.spec.checkpoint.path = "/checkpoints";
  await_pod(scene, 1);
  PodView& worker = scene.seen.pods.front();
  ASSERT_EQ(worker.node_index, 0);
  worker.terminating = true;
  worker.gone_by = scene.seen.wall_now + std::chrono::seconds(20);
  settle_all(scene);
  EXPECT_TRUE(is_true(scene.status(), kDraining)) << "they have time";
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().restarts, 1);
}

TEST(ServerMoves, AnotherServersFailureOfTheSameMomentIsSurvived) {
  Scene scene = training(4);
  lose_pod(scene, 0);
  scene.fail_worker(kWorkers + 2, 137, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_FALSE(scene.status().worldHash.empty());
  EXPECT_EQ(scene.status().restarts, 2);
}

TEST(ServerMoves, AJoiningServerThatDoesNotKnowMovesCountsToo) {
  Scene scene = training(4);
  scene.fail_worker(kWorkers + 2, 137, 0.1, "Signal");
  settle_all(scene);
  follow(scene, 2);
  start_anew(scene, 2);
  settle_all(scene);
  ASSERT_EQ(scene.status().serversView, "3:1,1,+3,1");
  server(scene, 2).protocol = kProtocolWithCopies;
  lose_pod(scene, 0);
  settle_all(scene);
  EXPECT_TRUE(scene.status().worldHash.empty());
}

TEST(ServerMoves, AnEndedJobsPodWithoutAnAddressIsDeleted) {
  Scene scene = training(3);
  await_pod(scene, 1);
  for (const int64_t i : {0, 1, 2, 4}) {
    WorkerState& process = scene.agent(i).workers.front();
    process.running = false;
    process.reason = "Completed";
  }
  settle_all(scene);
  ASSERT_TRUE(is_true(scene.status(), kComplete)) << "no worker needs the server";
  const Plan plan = scene.plan();
  EXPECT_FALSE(sent(plan).contains(kWorkers + 1));
  ASSERT_EQ(only<DeletePod>(plan).size(), 1u);
  EXPECT_EQ(only<DeletePod>(plan).front().name, "job-server-3-2");
}

TEST(ServerMoves, TheNextRoundBeginsWithThePodsThatAreThere) {
  Scene scene = training(3);
  move_pod(scene, 1);
  scene.agent(0).workers.front().phase = WorkerPhase::kLoading;  // it had no place to return to
  scene.fail_worker(0, 137, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().serversView, "1:1,1,1#12");
  scene.advance(std::chrono::seconds(60));  // of backing off
  for (auto& [uid, agent] : scene.seen.agents) agent.last_heard = scene.now;
  const auto assignments = sent(scene.plan());
  ASSERT_TRUE(assignments.contains(0));
  EXPECT_EQ(assignments.at(0).world.members[kWorkers + 1].host, "10.0.9.9");
  EXPECT_EQ(assignments.at(0).world.members[kWorkers + 1].incarnation, 2);
}

TEST(ServerMoves, TheEndOfTheJobIsToldToThePodThatTookThePlace) {
  Scene scene = training(3);
  move_pod(scene, 1);
  scene.add_agent(kWorkers + 1);
  for (int64_t i = 0; i < kWorkers + 3; ++i) {
    WorkerState& process = scene.agent(i).workers.front();
    process.running = false;
    process.reason = "Completed";
  }
  settle_all(scene);
  ASSERT_TRUE(is_true(scene.status(), kComplete));
  const auto assignments = sent(scene.plan());
  ASSERT_TRUE(assignments.contains(kWorkers + 1));
  EXPECT_EQ(assignments.at(kWorkers + 1).action, "Exit");
  EXPECT_EQ(assignments.at(kWorkers + 1).servers_view, scene.status().serversView);
}

}  // namespace
}  // namespace lockstep::plan
