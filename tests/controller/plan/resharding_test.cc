// Servers that become more and fewer while their round goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/plan/servers.h"
#include "tests/controller/plan/served_scene.h"

namespace lockstep::plan {
namespace {

constexpr char kNewHost[] = "10.0.9.9";

std::map<int64_t, Assignment> sent_by(const Plan& plan) {
  std::map<int64_t, Assignment> assignments;
  for (const PutAssignment& put : only<PutAssignment>(plan)) {
    assignments[put.node_index] = *put.assignment;
    assignments[put.node_index].node_index = put.node_index;
  }
  return assignments;
}

void want_servers(Scene& scene, int64_t servers) {
  scene.seen.job.spec.parameterServers->nodes = servers;
  ++scene.seen.job.metadata.generation;
  settle_all(scene);
}

void run_pod(Scene& scene, int64_t server, int64_t incarnation = 1) {
  run_next_pod(scene, kWorkers + server, incarnation, kNewHost);
  settle_all(scene);
}

// All agents have the newest view, and the processes that run follow it.
void all_follow(Scene& scene) {
  follow(scene, servers_view_from_text(scene.status().serversView)->number);
}

// The agent of the added server has started it, and it serves.
void serve(Scene& scene, int64_t index) {
  AgentState& state = scene.add_agent(kWorkers + index);
  all_follow(scene);
  state.servers_started = state.servers_view;
  state.workers.front().rank = kWorkers + index;
}

std::vector<std::string> names_of_events(Scene& scene, const std::string& reason) {
  std::vector<std::string> messages;
  for (const EmitEvent& event : only<EmitEvent>(scene.plan())) {
    if (event.reason == reason) messages.push_back(event.message);
  }
  return messages;
}

// A third server has been added to the two of the round.
Scene with_third_server(int64_t copies = 0) {
  Scene scene = training(2, copies, true);
  want_servers(scene, 3);
  run_pod(scene, 2);
  serve(scene, 2);
  settle_all(scene);
  all_follow(scene);
  settle_all(scene);
  all_follow(scene);
  settle_all(scene);
  return scene;
}

TEST(MoreServers, NeedAgentsThatKnowPlaces) {
  EXPECT_EQ(training(2, 0, true).status().serversView, "1:1,1#8");
  EXPECT_EQ(training(2, 0, false).status().serversView, "") << "the agents had not told";
}

TEST(MoreServers, WaitForAnAgentThatIsNotTooOldAndSayWhy) {
  Scene scene = training(2, 0, true);
  want_servers(scene, 3);
  run_next_pod(scene, kWorkers + 2, 1, kNewHost);
  server(scene, 2).protocol = kProtocolWithPlaces - 1;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "1:1,1#8");
  const Condition* ready = find_condition(scene.status(), kReady);
  ASSERT_NE(ready, nullptr);
  EXPECT_EQ(ready->reason, "AgentTooOld");
  EXPECT_TRUE(
      ready->message.starts_with("the agent of job-server-4-1 speaks protocol version 15, "
                                 "but a server that is added to a round needs version 16"))
      << ready->message;
  EXPECT_TRUE(is_true(scene.status(), kRunning)) << "training goes on";
  server(scene, 2).protocol = kProtocolWithPlaces;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "2:1,1,*-2@>1/10.0.9.9#8");
}

TEST(MoreServers, AreAddedToTheRound) {
  Scene scene = training(2, 0, true);
  const std::string hash = scene.status().worldHash;
  want_servers(scene, 3);
  EXPECT_EQ(scene.status().members, "1,1,1,1,1");
  const Plan plan = scene.plan();
  ASSERT_EQ(only<CreatePod>(plan).size(), 1u);
  EXPECT_EQ(only<CreatePod>(plan).front().name, "job-server-4-1");
  EXPECT_EQ(scene.status().serversView, "1:1,1#8") << "its pod does not run yet";
  run_pod(scene, 2);
  EXPECT_EQ(scene.status().serversView, "2:1,1,*-2@>1/10.0.9.9#8");
  const auto assignments = sent_by(scene.plan());
  ASSERT_EQ(assignments.size(), 5u);
  const Assignment& to_it = assignments.at(kWorkers + 2);
  EXPECT_EQ(to_it.world.members.size(), 4u) << "as when the round began";
  EXPECT_EQ(to_it.hash, hash);
  EXPECT_EQ(to_it.protocol, kProtocolWithPlaces);
  EXPECT_EQ(rank_in_round(to_it, 0), kWorkers + 2);
  EXPECT_TRUE(assignment_from_json(to_json(to_it)).ok());
  EXPECT_TRUE(is_true(scene.status(), kRunning));
  serve(scene, 2);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "3:1,1,*+3@>1/10.0.9.9#8");
  all_follow(scene);
  server(scene, 0).workers.front().is_filling = true;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "3:1,1,*+3@>1/10.0.9.9#8") << "it is being filled";
  server(scene, 0).workers.front().is_filling = false;
  scene.settle();
  EXPECT_EQ(scene.status().serversView, "4:1,1,4@>1/10.0.9.9#8");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().worldHash, hash);
  EXPECT_EQ(scene.status().restarts, 0);
}

TEST(MoreServers, ComeOneAfterTheOther) {
  Scene scene = training(2, 0, true);
  want_servers(scene, 4);
  run_pod(scene, 3);
  EXPECT_EQ(scene.status().serversView, "1:1,1#8") << "the one before it comes first";
  run_pod(scene, 2);
  EXPECT_EQ(scene.status().serversView, "2:1,1,*-2@>1/10.0.9.9#8");
  serve(scene, 2);
  for (int i = 0; i < 3; ++i) {
    settle_all(scene);
    all_follow(scene);
  }
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "5:1,1,4@>1/10.0.9.9,*-5@>1/10.0.9.9#8");
}

TEST(MoreServers, ThatFailBeforeTheyCountEndNoRound) {
  Scene scene = training(2, 0, true);
  want_servers(scene, 3);
  run_pod(scene, 2);
  serve(scene, 2);
  settle_all(scene);
  all_follow(scene);
  scene.fail_worker(kWorkers + 2, 137, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "4:1,1,*-4@>1/10.0.9.9#8");
  EXPECT_EQ(scene.status().restarts, 1);
}

TEST(MoreServers, ThatCountAreMissedWithoutCopies) {
  Scene scene = with_third_server();
  EXPECT_EQ(scene.status().serversView, "4:1,1,4@>1/10.0.9.9#8");
  scene.fail_worker(kWorkers + 2, 137, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 2);
  EXPECT_EQ(scene.status().serversView, "1:1,1,1#12") << "the next round has all three";
}

TEST(MoreServers, BeginAnotherRoundWithAgentsThatDoNotKnowPlaces) {
  Scene scene = training(2, 0, false);
  want_servers(scene, 3);
  run_pod(scene, 2);
  EXPECT_EQ(scene.status().round, 2);
}

TEST(FewerServers, HandOverWhatTheyHold) {
  Scene scene = with_third_server();
  scene.seen.job.spec.parameterServers->nodes = 2;
  scene.settle();
  EXPECT_EQ(scene.status().serversView, "5:1,1,4~5@>1/10.0.9.9#8");
  EXPECT_EQ(scene.status().members, "1,1,1,1,1") << "it stays until it has handed over";
  all_follow(scene);
  server(scene, 2).workers.front().is_filling = true;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "5:1,1,4~5@>1/10.0.9.9#8");
  server(scene, 2).workers.front().is_filling = false;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "6:1,1,!6@>1/#8");
  EXPECT_TRUE(only<DeletePod>(scene.plan()).empty()) << "its process runs still";
  EXPECT_TRUE(sent_by(scene.plan()).contains(kWorkers + 2)) << "it learns that it has left";
  all_follow(scene);
  WorkerState& process = server(scene, 2).workers.front();
  process.running = false;
  process.reason = "Completed";
  settle_all(scene);
  EXPECT_EQ(scene.status().members, "1,1,1,1");
  const Plan plan = scene.plan();
  ASSERT_EQ(only<DeletePod>(plan).size(), 1u);
  EXPECT_EQ(only<DeletePod>(plan).front().name, "job-server-4-1");
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_TRUE(is_true(scene.status(), kRunning));
}

TEST(FewerServers, AlsoLoseThoseOfTheFirstHour) {
  Scene scene = training(2, 0, true);
  const std::string hash = scene.status().worldHash;
  want_servers(scene, 1);
  EXPECT_EQ(scene.status().serversView, "2:1,1~2#8");
  all_follow(scene);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "3:1,!3@1/10.0.0.4>1/#8");
  all_follow(scene);
  WorkerState& process = server(scene, 1).workers.front();
  process.running = false;
  process.reason = "Completed";
  settle_all(scene);
  std::erase_if(scene.seen.pods, [](const PodView& pod) { return pod.node_index == kWorkers + 1; });
  settle_all(scene);
  EXPECT_EQ(scene.status().members, "1,1,1");
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().worldHash, hash);
  want_servers(scene, 2);
  EXPECT_EQ(scene.status().members, "1,1,1,2");
  run_pod(scene, 1, 2);
  EXPECT_EQ(scene.status().serversView, "4:1,*3-4@1/10.0.0.4>2/10.0.9.9#8");
  EXPECT_EQ(scene.status().worldHash, hash);
}

TEST(FewerServers, ThatHaveLeftFailNothingAnyMore) {
  Scene scene = with_third_server();
  scene.seen.job.spec.parameterServers->nodes = 2;
  scene.settle();
  all_follow(scene);
  settle_all(scene);
  scene.fail_worker(kWorkers + 2, 1, 0.1, "Error");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().restarts, 0);
  EXPECT_EQ(scene.status().members, "1,1,1,1");
}

// The pod of the server that left is lost before the job wants as many again.
TEST(FewerServers, GetANewPodIfTheyAreWantedAgain) {
  Scene scene = with_third_server();
  scene.seen.job.spec.parameterServers->nodes = 2;
  scene.settle();
  all_follow(scene);
  settle_all(scene);
  ASSERT_EQ(scene.status().serversView, "6:1,1,!6@>1/#8");
  scene.seen.job.spec.parameterServers->nodes = 3;
  for (PodView& pod : scene.seen.pods) {
    if (pod.node_index == kWorkers + 2) pod.phase = "Failed";
  }
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().restarts, 0);
  EXPECT_EQ(scene.status().members, "1,1,1,1,2");
  all_follow(scene);
  const Plan plan = scene.plan();
  ASSERT_EQ(only<CreatePod>(plan).size(), 1u) << plan.why;
  EXPECT_EQ(only<CreatePod>(plan).front().name, "job-server-4-2");
}

TEST(FewerServers, WaitForOnesThatAreBeingFilled) {
  Scene scene = training(3, 1, true);
  scene.fail_worker(kWorkers, 137, 0.1, "Signal");
  settle_all(scene);
  want_servers(scene, 2);
  EXPECT_EQ(scene.status().serversView, "2:-2,1,1#12");
  follow(scene, 2);
  start_anew(scene, 0);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "3:+3,1,1#12");
  all_follow(scene);
  scene.settle();
  EXPECT_EQ(scene.status().serversView, "4:4,1,1#12");
  all_follow(scene);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "5:4,1,1~5#12");
}

TEST(Resharding, IsToldInEvents) {
  Scene scene = with_third_server();
  scene.seen.job.status.serversView = "3:1,1,*+3@>1/10.0.9.9#8";
  follow(scene, 3);
  EXPECT_EQ(names_of_events(scene, "ServerAdded"),
            std::vector<std::string>{"rank 4 holds its share: the round has 3 servers now"});
  scene.seen.job.spec.parameterServers->nodes = 2;
  scene.seen.job.status.serversView = "5:1,1,4~5@>1/10.0.9.9#8";
  follow(scene, 5);
  EXPECT_EQ(
      names_of_events(scene, "ServerRemoved"),
      std::vector<std::string>{"rank 4 has handed over what it held: the round has 2 servers now"});
}

}  // namespace
}  // namespace lockstep::plan
