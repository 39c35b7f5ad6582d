#include "agent/train/servers/worker_watch.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

constexpr Duration kFloor = std::chrono::seconds(18);
constexpr Duration kPause = std::chrono::minutes(10);
constexpr Duration kLook = std::chrono::milliseconds(200);

AwaitedWorkers step_of(uint64_t number, std::vector<uint32_t> ranks) {
  return {"step", number, std::move(ranks)};
}

class WorkerWatchTest : public testing::Test {
 protected:
  // Looks for as long at a job that is at this step.
  void look_for(Duration time, uint64_t step, const std::optional<AwaitedWorkers>& awaited) {
    for (Duration passed{}; passed < time; passed += kLook) {
      now_ += kLook;
      watch_.look(step, awaited, now_);
    }
  }
  // Five steps of a second each.
  void train() {
    for (int i = 0; i < 5; ++i) look_for(std::chrono::seconds(1), ++step_, {});
  }

  WorkerWatch watch_{kFloor, kPause};
  TimePoint now_{std::chrono::hours(1)};
  uint64_t step_ = 0;
};

TEST_F(WorkerWatchTest, NamesAWorkerThatOthersWaitForInAStep) {
  train();
  look_for(kFloor - kLook, step_, step_of(step_ + 1, {2}));
  EXPECT_FALSE(watch_.hung(now_));
  look_for(2 * kLook, step_, step_of(step_ + 1, {2}));
  EXPECT_EQ(watch_.hung(now_), 2u);
  EXPECT_EQ(watch_.awaited(), step_of(step_ + 1, {2}));
}

TEST_F(WorkerWatchTest, StartsAnewWhenAnythingMoves) {
  train();
  look_for(kFloor - kLook, step_, step_of(step_ + 1, {1, 2}));
  look_for(kFloor - kLook, step_, step_of(step_ + 1, {2}));
  EXPECT_FALSE(watch_.hung(now_));
  ++step_;
  look_for(kFloor - kLook, step_, step_of(step_ + 1, {2}));
  EXPECT_FALSE(watch_.hung(now_));
  look_for(2 * kLook, step_, {});
  EXPECT_FALSE(watch_.hung(now_)) << "nobody waits";
}

TEST_F(WorkerWatchTest, IsPatientInTheFirstStepsAndInPauses) {
  look_for(kPause - kLook, 0, step_of(1, {0}));
  EXPECT_FALSE(watch_.hung(now_));
  look_for(2 * kLook, 0, step_of(1, {0}));
  EXPECT_EQ(watch_.hung(now_), 0u);
  train();
  look_for(kPause - kLook, step_, AwaitedWorkers{"meeting", 3, {1}});
  EXPECT_FALSE(watch_.hung(now_));
  look_for(2 * kLook, step_, AwaitedWorkers{"meeting", 3, {1}});
  EXPECT_EQ(watch_.hung(now_), 1u);
  look_for(3 * kPause, step_, AwaitedWorkers{"meeting", 4, {0}});
  EXPECT_FALSE(watch_.hung(now_)) << "rank 0 may validate for long";
  look_for(kFloor + kLook, step_, step_of(step_ + 1, {1}));
  EXPECT_FALSE(watch_.hung(now_)) << "the step after a pause may take as long";
}

// A small job may do many steps before the first look, and between two.
TEST_F(WorkerWatchTest, KnowsSoonHowLongQuickStepsTake) {
  watch_.begin_at(3, now_);
  look_for(2 * kLook, 0, {});
  look_for(kLook, 17, {});
  look_for(kFloor - kLook, 17, step_of(18, {1}));
  EXPECT_FALSE(watch_.hung(now_));
  look_for(2 * kLook, 17, step_of(18, {1}));
  EXPECT_EQ(watch_.hung(now_), 1u);
}

// The first step that is seen may have begun long ago, and so may all of them for a server that was
// not there.
TEST_F(WorkerWatchTest, IsPatientIfItHasNotSeenStepsBegin) {
  watch_.begin_at(0, now_);
  look_for(kLook, 1, {});
  look_for(kPause - kLook, 1, step_of(2, {1}));
  EXPECT_FALSE(watch_.hung(now_));
  watch_ = WorkerWatch(kFloor, kPause);
  look_for(kLook, 0, {});
  look_for(kLook, 5000, {});
  look_for(kPause - kLook, 5000, step_of(5001, {1}));
  EXPECT_FALSE(watch_.hung(now_));
}

TEST_F(WorkerWatchTest, StepsThatTakeLongHaveALongerLimit) {
  for (int i = 0; i < 5; ++i) look_for(std::chrono::seconds(10), ++step_, {});
  look_for(std::chrono::seconds(49), step_, step_of(step_ + 1, {1}));
  EXPECT_FALSE(watch_.hung(now_));
  look_for(std::chrono::seconds(2), step_, step_of(step_ + 1, {1}));
  EXPECT_EQ(watch_.hung(now_), 1u);
}

TEST_F(WorkerWatchTest, LeavesOutTimeInWhichNobodyLooked) {
  train();
  look_for(std::chrono::seconds(1), step_, step_of(step_ + 1, {1}));
  now_ += std::chrono::hours(1);  // the machine slept
  watch_.look(step_, step_of(step_ + 1, {1}), now_);
  EXPECT_FALSE(watch_.hung(now_));
}

}  // namespace
}  // namespace lockstep::train
