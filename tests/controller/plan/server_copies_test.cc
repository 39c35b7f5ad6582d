// Jobs whose parameter servers have copies: which of them count, and when.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/controller/plan/served_scene.h"

namespace lockstep::plan {
namespace {

TEST(ServerCopies, LetTheRoundGoOnWithoutAServerThatDies) {
  Scene scene = training(3);
  ASSERT_TRUE(is_true(scene.status(), kRunning));
  scene.fail_worker(kWorkers + 1, 137, 0.1, "Signal");
  const Plan plan = scene.plan();
  EXPECT_TRUE(is_decision(plan));
  scene.settle();
  EXPECT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().serversView, "2:1,-2,1");
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().lastFailure->action, "RestartInPlace");
  EXPECT_EQ(scene.status().lastFailure->rank, kWorkers + 1);
  EXPECT_EQ(scene.status().lastFailure->resumedStep, scene.status().lastFailure->step);
  EXPECT_TRUE(is_true(scene.status(), kRunning)) << "the workers train all the time";
  EXPECT_FALSE(is_true(scene.status(), kRestarting));
  const auto sent = only<PutAssignment>(scene.plan());
  ASSERT_EQ(sent.size(), 5u);
  EXPECT_EQ(sent.front().assignment->servers_view, "2:1,-2,1");
  EXPECT_EQ(sent.front().assignment->world.round, 1);
  EXPECT_EQ(sent.front().assignment->protocol, kProtocolNewest);
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 1) << "the same failure does not count again";
}

TEST(ServerCopies, JoinAgainAreFilledAndCount) {
  Scene scene = training(3);
  scene.fail_worker(kWorkers + 1, 137, 0.1, "Signal");
  settle_all(scene);
  follow(scene, 2);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "2:1,-2,1") << "it has not been started anew";
  start_anew(scene, 1);
  server(scene, 1).workers.front().phase = WorkerPhase::kForming;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "2:1,-2,1") << "it does not serve yet";
  server(scene, 1).workers.front().phase = WorkerPhase::kTraining;
  server(scene, 2).workers.front().servers_view = 1;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "2:1,-2,1") << "a server does not know that it was gone";
  server(scene, 2).workers.front().servers_view = 2;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "3:1,+3,1");
  follow(scene, 3);
  server(scene, 0).workers.front().is_filling = true;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "3:1,+3,1") << "it is being filled";
  server(scene, 0).workers.front().is_filling = false;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "4:1,4,1");
  EXPECT_EQ(scene.status().round, 1);
}

TEST(ServerCopies, AreAskedWhetherTheyFillInTheViewThatCounts) {
  Scene scene = training(2);
  scene.fail_worker(kWorkers, 137, 0.1, "Signal");
  settle_all(scene);
  follow(scene, 2);
  start_anew(scene, 0);
  settle_all(scene);
  ASSERT_EQ(scene.status().serversView, "3:+3,1");
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "3:+3,1") << "nobody has told of view 3";
  follow(scene, 3);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "4:4,1");
}

TEST(ServerCopies, OfTwoThatDieOneAfterTheOtherJoinOneAfterTheOther) {
  Scene scene = training(4);
  for (const int64_t index : {0, 2}) {
    scene.fail_worker(kWorkers + index, 137, 0.1, "Signal");
    settle_all(scene);
  }
  EXPECT_EQ(scene.status().serversView, "3:-2,1,-3,1");
  EXPECT_EQ(scene.status().restarts, 2);
  follow(scene, 3);
  for (const int64_t index : {0, 2}) start_anew(scene, index);
  for (const char* view : {"4:+4,1,-3,1", "5:5,1,-3,1", "6:5,1,+6,1", "7:5,1,7,1"}) {
    settle_all(scene);
    EXPECT_EQ(scene.status().serversView, view);
    follow(scene, std::stoll(view));
  }
}

TEST(ServerCopies, AServerThatDiesAgainIsGoneAgain) {
  Scene scene = training(2);
  scene.fail_worker(kWorkers, 137, 0.1, "Signal");
  settle_all(scene);
  follow(scene, 2);
  start_anew(scene, 0);
  scene.fail_worker(kWorkers, 139, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "3:-3,1");
  EXPECT_EQ(scene.status().restarts, 2);
  follow(scene, 3);
  start_anew(scene, 0);
  settle_all(scene);
  ASSERT_EQ(scene.status().serversView, "4:+4,1");
  follow(scene, 4);
  scene.fail_worker(kWorkers, 139, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "5:-5,1") << "also while it is filled";
}

TEST(ServerCopies, WithoutOneThatHoldsAllANewRoundBegins) {
  struct Case {
    const char* name;
    int64_t servers;
    int64_t copies;
    std::vector<int64_t> fail;
  };
  for (const Case& test : std::initializer_list<Case>{{"no copies", 3, 0, {1}},
                                                      {"neighbours", 3, 1, {0, 1}},
                                                      {"around the end", 3, 1, {0, 2}}}) {
    SCOPED_TRACE(test.name);
    Scene scene = training(test.servers, test.copies);
    for (const int64_t index : test.fail) {
      scene.fail_worker(kWorkers + index, 137, 0.1, "Signal");
      settle_all(scene);
    }
    EXPECT_EQ(scene.status().round, 2);
    EXPECT_EQ(scene.status().serversView, "1:1,1,1#12");
  }
}

TEST(ServerCopies, LetNoRoundGoOnThatDoesNotTrainYet) {
  Scene scene = training(3);
  scene.status().conditions.clear();
  scene.agent(0).workers.front().phase = WorkerPhase::kLoading;
  scene.fail_worker(kWorkers, 137, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 2);
}

TEST(ServerCopies, DoNotHelpWhereARuleOrAnErrorEndsTheJob) {
  Scene scene = training(3);
  scene.seen.job.spec.failure.rules = {{.exitCodes = {137}, .action = "Fail"}};
  scene.fail_worker(kWorkers, 137, 0.1, "Signal");
  settle_all(scene);
  EXPECT_TRUE(is_true(scene.status(), kFailed));
  scene = training(3);
  scene.fail_worker(kWorkers, kExitBadConfig, 0.1);
  settle_all(scene);
  EXPECT_EQ(condition(scene.status(), kFailed).reason, "NotRetryable");
  scene = training(3);
  scene.seen.job.spec.failure.maxRestarts = 0;
  scene.fail_worker(kWorkers, 137, 0.1, "Signal");
  settle_all(scene);
  EXPECT_EQ(condition(scene.status(), kFailed).reason, "TooManyRestarts");
}

TEST(ServerCopies, AServerWithoutASignOfLifeIsStartedAnew) {
  Scene scene = training(3);
  WorkerState& process = server(scene, 1).workers.front();
  process.is_lifeless = true;
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "2:1,-2,1");
  EXPECT_EQ(scene.status().lastFailure->reason, kHang);
  EXPECT_EQ(scene.status().restarts, 1);
  follow(scene, 2);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "2:1,-2,1") << "its agent has yet to kill it";
  start_anew(scene, 1);
  settle_all(scene);
  EXPECT_EQ(scene.status().serversView, "3:1,+3,1");
  EXPECT_EQ(scene.status().restarts, 1);
}

TEST(ServerCopies, NothingGoesOnOnceAWorkerHasGivenUp) {
  Scene scene = training(3);
  server(scene, 1).workers.front().is_lifeless = true;
  scene.agent(0).workers.front().suspect_rank = kWorkers + 1;
  scene.fail_worker(0, kExitPeerHung, 0.1);
  scene.fail_worker(1, kExitPeerHung, 0.1);
  scene.advance(std::chrono::seconds(6));
  for (auto& [uid, agent] : scene.seen.agents) agent.last_heard = scene.now;
  settle_all(scene);
  EXPECT_EQ(scene.status().round, 2);
}

TEST(ServerCopies, TheJobIsCompleteWithoutTheOneThatIsGone) {
  Scene scene = training(2);
  scene.fail_worker(kWorkers, 137, 0.1, "Signal");
  settle_all(scene);
  for (const int64_t index : {0, 1, 3}) {
    WorkerState& process = scene.agent(index).workers.front();
    process.running = false;
    process.reason = "Completed";
  }
  settle_all(scene);
  EXPECT_TRUE(is_true(scene.status(), kComplete));
}

TEST(ServerCopies, ATextThatIsNoViewCountsAsTheFirst) {
  Scene scene = training(3);
  for (const char* text : {"nonsense", "2:1,-2", "2:-2,-2,-2"}) {
    scene.status().serversView = text;
    settle_all(scene);
    EXPECT_EQ(scene.status().round, 1);
    EXPECT_EQ(scene.status().serversView, text);
  }
}

}  // namespace
}  // namespace lockstep::plan
