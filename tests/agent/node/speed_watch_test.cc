#include "agent/node/speed_watch.h"

#include <gtest/gtest.h>

namespace lockstep::node {
namespace {

class SpeedWatchTest : public testing::Test {
 protected:
  // Steps of a second each, of which so much is forward.
  void steps(int64_t count, double forward, WorkerPhase phase = WorkerPhase::kTraining) {
    for (int64_t i = 0; i < count; ++i) {
      now_ += std::chrono::seconds(1);
      ProgressNumbers numbers;
      numbers.step = ++step_;
      numbers.step_seconds = 1;
      numbers.forward_seconds = forward;
      numbers.communication_seconds = 1 - forward;
      numbers.phase = phase;
      watch_.observe(numbers, now_);
      watch_.observe(numbers, now_ + std::chrono::milliseconds(500));  // the same step
    }
  }

  SpeedWatch watch_;
  TimePoint now_{};
  int64_t step_ = 100;
};

TEST_F(SpeedWatchTest, AveragesTheStepsOfAWindow) {
  steps(SpeedWatch::kStepsLeftOut, 0.9);
  EXPECT_FALSE(watch_.speed());
  steps(40, 0.2);
  EXPECT_FALSE(watch_.speed()) << "the window is not over";
  steps(20, 0.5);
  ASSERT_TRUE(watch_.speed());
  EXPECT_NEAR(watch_.speed()->forward_seconds, 0.3, 1e-9);
  EXPECT_NEAR(watch_.speed()->step_seconds, 1, 1e-9);
  EXPECT_EQ(watch_.speed()->backward_seconds, 0);
  steps(59, 0.8);
  EXPECT_NEAR(watch_.speed()->forward_seconds, 0.3, 1e-9) << "until the next window is over";
  steps(1, 0.8);
  EXPECT_NEAR(watch_.speed()->forward_seconds, 0.8, 1e-9);
}

TEST_F(SpeedWatchTest, LooksAtTrainingAlone) {
  steps(100, 0.5, WorkerPhase::kLoading);
  EXPECT_FALSE(watch_.speed());
}

TEST_F(SpeedWatchTest, IgnoresNumbersThatAreNone) {
  steps(80, -1e300);
  ASSERT_TRUE(watch_.speed());
  EXPECT_EQ(watch_.speed()->forward_seconds, 0);
}

}  // namespace
}  // namespace lockstep::node
