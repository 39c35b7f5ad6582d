#include "agent/train/train_step.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/agent/train/training.h"

namespace lockstep::train {
namespace {

// Each look at it is one second after the previous one, so that a part of a step takes as many
// seconds as it has laps.
class LapClock final : public Clock {
 public:
  TimePoint now() const override { return now_ += std::chrono::seconds(1); }
  WallTime wall_now() const override { return WallTime(); }

 private:
  mutable TimePoint now_{};
};

TEST(TrainStep, CountsTheHeadsLogitsAndLossesAsForward) {
  const LapClock clock;
  Training training({.accumulation = 3, .clock = &clock});
  ASSERT_NO_FATAL_FAILURE(training.train(2));
  for (const StepNumbers& seconds : training.seconds) {
    EXPECT_EQ(seconds.data_seconds, 3);
    EXPECT_EQ(seconds.forward_seconds, 3 * 2) << "the layers, and the head's only chunk";
    EXPECT_EQ(seconds.backward_seconds, 3 * 2) << "the gradients of that chunk, and of the layers";
    EXPECT_EQ(seconds.communication_seconds, 2) << "gradients, and the step's results";
    EXPECT_EQ(seconds.update_seconds, 2) << "zeroes, and the update";
    EXPECT_EQ(seconds.step_seconds, 3 + 6 + 6 + 2 + 2);
  }
}

}  // namespace
}  // namespace lockstep::train
