#include "agent/train/next_round.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "agent/train/stop_signal.h"
#include "common/api/round_channel.h"

namespace lockstep::train {
namespace {

class NextRound : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ends = make_round_channel();
    ASSERT_TRUE(ends.ok());
    agent_ = (*ends)[0];
    config_.rounds_fd = (*ends)[1];
    config_.world.round = 3;
    progress_.numbers().first_step_unix_seconds = 1;
    progress_.enter(WorkerPhase::kTraining);
  }
  void TearDown() override {
    if (agent_ >= 0) close(agent_);
    close(static_cast<int>(config_.rounds_fd));
  }

  int agent_ = -1;
  WorkerConfig config_;
  ProgressReporter progress_{std::nullopt, 3};
};

TEST_F(NextRound, IsForRanksThatLostAPeerWhileTheyTrained) {
  EXPECT_TRUE(may_stay(config_, kExitPeerLost, progress_));
  EXPECT_TRUE(may_stay(config_, kExitPeerHung, progress_));
  progress_.enter(WorkerPhase::kSaving);
  EXPECT_TRUE(may_stay(config_, kExitPeerLost, progress_));
}

TEST_F(NextRound, IsNotForARankWithAnErrorOfItsOwn) {
  for (const int code :
       {0, kExitOwnError, kExitBadConfig, kExitDataError, kExitStorageError, kExitNotFinite,
        kExitPortTaken, kExitNoDevice, kExitFenced, kExitLossSpike, kExitStopped}) {
    EXPECT_FALSE(may_stay(config_, code, progress_)) << code;
  }
}

TEST_F(NextRound, IsNotForOneThatHasDoneNoStepInThisRound) {
  progress_.begin_round(4);
  progress_.enter(WorkerPhase::kTraining);
  EXPECT_FALSE(may_stay(config_, kExitPeerLost, progress_));
}

TEST_F(NextRound, IsNotForOneOnAGpuNorWithoutAnAgentThatOffersRounds) {
  config_.gpu = 0;
  EXPECT_FALSE(may_stay(config_, kExitPeerLost, progress_));
  config_.gpu = -1;
  WorkerConfig alone = config_;
  alone.rounds_fd = -1;
  EXPECT_FALSE(may_stay(alone, kExitPeerLost, progress_));
}

// As in a new process, SIGTERM ends it at once until there is something to save.
TEST_F(NextRound, TakesSigtermAsANewProcessDoes) {
  StopSignal::arm();
  ASSERT_TRUE(send_next(agent_, {.config_path = "/nowhere/rank-0.json"}).ok());
  EXPECT_FALSE(await_next_round(config_, kExitPeerLost).ok());
  for (const int signal : {SIGTERM, SIGINT}) {
    struct sigaction action {};
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
    EXPECT_EQ(action.sa_handler, SIG_DFL) << signal;
  }
}

TEST_F(NextRound, EndsTheProcessIfTheAgentIsGoneOrItsFileIsUnreadable) {
  std::thread agent([&] {
    while (!receive_left(agent_)) std::this_thread::yield();
    EXPECT_TRUE(send_next(agent_, {.config_path = "/nowhere/rank-0.json"}).ok());
  });
  const auto next = await_next_round(config_, kExitPeerLost);
  agent.join();
  ASSERT_FALSE(next.ok());
  EXPECT_NE(next.error().message.find("/nowhere/rank-0.json"), std::string::npos);
  close(std::exchange(agent_, -1));
  const auto without_agent = await_next_round(config_, kExitPeerLost);
  ASSERT_TRUE(without_agent.ok());
  EXPECT_FALSE(without_agent->has_value()) << "the exit code is still that of the round";
}

}  // namespace
}  // namespace lockstep::train
