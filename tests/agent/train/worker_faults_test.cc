// Workers that are killed, stopped, told to end, or find a broken checkpoint: the next round ends
// with the result of an undisturbed run.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/agent/train/small_worker.h"

namespace lockstep::train {
namespace {

// Kills a rank when it has reached a phase (or just passed it). The next round must end with the
// result of an undisturbed run.
class KilledWorkerTest : public testing::TestWithParam<WorkerPhase> {};

TEST_P(KilledWorkerTest, TheNextRoundEndsWithTheSameBits) {
  const WorkerPhase phase = GetParam();
  for (const int64_t victim : {0, 1}) {
    WorkerWorld world(small_world(2));
    ASSERT_NO_FATAL_FAILURE(world.start());
    const bool late = phase != WorkerPhase::kForming && phase != WorkerPhase::kBroadcasting;
    world.wait_until(0, [&](const ProgressNumbers& numbers) {
      return numbers.phase >= phase && (!late || numbers.step >= 30);
    });
    world.kill(victim, SIGKILL);
    // A rank that waits for one that never came is ended by its agent when the next round is
    // assigned.
    const bool alone = phase == WorkerPhase::kForming;
    if (alone) world.kill(1 - victim, SIGKILL);
    const std::vector<int> codes = world.wait();
    // In the last phase the other rank may already be done.
    const int other = codes[static_cast<size_t>(1 - victim)];
    EXPECT_TRUE(other == kExitPeerLost || other == 0 || alone) << other << "\n"
                                                               << world.log(1 - victim);
    if (other == kExitPeerLost && world.progress(1 - victim).phase >= WorkerPhase::kBroadcasting) {
      EXPECT_EQ(world.progress(1 - victim).suspect_rank, victim);
    }
    ASSERT_NO_FATAL_FAILURE(world.run());
    expect_same_end(undisturbed(), world);
    EXPECT_EQ(world.progress(0).loss, undisturbed().progress(0).loss);
    EXPECT_EQ(world.progress(0).validation_loss, undisturbed().progress(0).validation_loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Phases, KilledWorkerTest,
                         testing::Values(WorkerPhase::kForming, WorkerPhase::kBroadcasting,
                                         WorkerPhase::kTraining, WorkerPhase::kSaving,
                                         WorkerPhase::kValidating, WorkerPhase::kFinishing),
                         [](const auto& info) {
                           return std::string(worker_phase_name(info.param));
                         });

TEST(Worker, FallsBackToTheCheckpointBeforeABrokenOne) {
  WorkerWorld world(small_world(2));
  ASSERT_NO_FATAL_FAILURE(world.run());
  std::filesystem::resize_file(
      world.checkpoints() + "/step-00000060/model-00000-of-00002.safetensors", 1000);
  std::filesystem::remove(world.checkpoints() + "/step-00000050/manifest.json");
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("a checkpoint was set aside"), std::string::npos);
  EXPECT_NE(world.log(0).find("/step-00000025"), std::string::npos) << world.log(0);
  expect_same_end(undisturbed(), world);
}

// Also where they cannot be renamed, because of a folder of that name.
TEST(Worker, KeepsTheMetricsOfATrainingThatStartsOver) {
  WorkerWorld::Options options = small_world(1);
  options.train.steps = 2;
  for (const bool is_in_the_way : {false, true}) {
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.run());
    const std::string metrics = world.checkpoints() + "/metrics.jsonl";
    const std::string kept = world.checkpoints() + "/metrics-before-2.jsonl";
    const std::string before = read_file(metrics);
    std::filesystem::remove(world.checkpoint_folder(2) + "/manifest.json");
    if (is_in_the_way) std::filesystem::create_directory(kept);
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_NE(world.log(0).find("a checkpoint was set aside"), std::string::npos);
    EXPECT_EQ(read_file(is_in_the_way ? metrics : kept), before);
    EXPECT_EQ(world.log(0).find("metrics can't be written") != std::string::npos, is_in_the_way);
  }
}

TEST(Worker, SavesAndLeavesOnSigtermAndGoesOnLater) {
  WorkerWorld world(small_world(2));
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(1, [](const ProgressNumbers& numbers) { return numbers.step >= 3; });
  world.kill(1, SIGTERM);  // one is enough: the ranks agree on stopping
  EXPECT_EQ(world.wait(), (std::vector<int>{kExitStopped, kExitStopped}));
  const int64_t step = world.progress(0).step.value();
  EXPECT_GE(step, 3);
  EXPECT_LT(step, kSmallSteps);
  EXPECT_EQ(world.progress(1).step, step);
  EXPECT_EQ(world.progress(0).checkpoint_step, step);
  ASSERT_NO_FATAL_FAILURE(world.run());
  expect_same_end(undisturbed(), world);
}

TEST(Worker, SavesOnSigtermAlsoIfTheJobWantsNoCheckpointAtTheEnd) {
  WorkerWorld::Options options = small_world(2);
  options.checkpoint_every = 0;
  options.checkpoint_at_end = false;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(1, [](const ProgressNumbers& numbers) { return numbers.step >= 3; });
  world.kill(1, SIGTERM);
  EXPECT_EQ(world.wait(), (std::vector<int>{kExitStopped, kExitStopped}));
  EXPECT_GE(world.progress(0).step, 3);
  EXPECT_EQ(world.progress(0).checkpoint_step, world.progress(0).step);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.metric("loss"), undisturbed().metric("loss"));
  EXPECT_EQ(world.metric("validationLoss"), undisturbed().metric("validationLoss"));
}

TEST(Worker, SavesWhenItIsToldToStopDuringAValidation) {
  WorkerWorld::Options options = small_world(1);
  options.train.data.validationFraction = 0.5;  // takes much longer than a step
  options.train.validation.everySteps = 2;
  options.checkpoint_every = 0;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(
      0, [](const ProgressNumbers& numbers) { return numbers.phase == WorkerPhase::kValidating; });
  world.kill(0, SIGTERM);
  EXPECT_EQ(world.wait(), std::vector<int>{kExitStopped}) << world.log(0);
  EXPECT_GE(world.progress(0).step, 2);
  EXPECT_EQ(world.progress(0).checkpoint_step, world.progress(0).step) << world.log(0);
}

TEST(Worker, ARankThatStandsStillIsNamedWithTheCollectiveThatItMisses) {
  for (const int64_t victim : {0, 1}) {
    WorkerWorld::Options options = small_world(2);
    options.hang_seconds = 1;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.start());
    world.wait_until(victim, [](const ProgressNumbers& numbers) { return numbers.step >= 5; });
    world.kill(victim, SIGSTOP);
    const int64_t other = 1 - victim;
    world.wait_until(other,
                     [](const ProgressNumbers& numbers) { return numbers.suspect_rank >= 0; });
    EXPECT_EQ(world.progress(other).suspect_rank, victim) << world.log(other);
    world.kill(victim, SIGKILL);
    const std::vector<int> codes = world.wait();
    EXPECT_EQ(codes[static_cast<size_t>(other)], kExitPeerHung) << world.log(other);
    const std::string log = world.log(other);
    EXPECT_NE(log.find(": rank " + std::to_string(victim) + " silent for "), std::string::npos)
        << log;
    EXPECT_NE(log.find("[comm] all_"), std::string::npos) << log;
    ASSERT_NO_FATAL_FAILURE(world.run());
    expect_same_end(undisturbed(), world);
  }
}

TEST(Worker, AMachineThatStoodStillAsAWholeIsNoHang) {
  WorkerWorld::Options options = small_world(2);
  options.hang_seconds = 3;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step >= 5; });
  const auto let_pass = [&world](std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    world.wait_until(0, [until](const auto&) { return std::chrono::steady_clock::now() >= until; });
  };
  world.kill(0, SIGSTOP);
  let_pass(std::chrono::milliseconds(300));  // rank 1 waits for it
  world.kill(1, SIGSTOP);
  let_pass(std::chrono::seconds(7));
  for (const int64_t rank : {0, 1}) world.kill(rank, SIGCONT);
  EXPECT_EQ(world.wait(), (std::vector<int>{0, 0})) << world.log(1);
  expect_same_end(undisturbed(), world);
}

}  // namespace
}  // namespace lockstep::train
