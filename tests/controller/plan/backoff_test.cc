#include <gtest/gtest.h>

#include "controller/plan/backoff.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;

TEST(Backoff, TheFirstRestartIsImmediateAndLaterOnesWaitLongerUpToABound) {
  const Limits limits;
  EXPECT_EQ(restart_delay(0, limits), Duration{0});
  EXPECT_EQ(restart_delay(1, limits), Duration{0});
  EXPECT_EQ(restart_delay(2, limits), seconds(1));
  EXPECT_EQ(restart_delay(3, limits), seconds(2));
  EXPECT_EQ(restart_delay(5, limits), seconds(8));
  EXPECT_EQ(restart_delay(100, limits), seconds(120));
}

TEST(Backoff, WithoutProgressTheNextRoundIsHeldBack) {
  Scene scene(1);
  scene.train();
  scene.fail_worker(0, 1, 0);
  scene.settle();
  scene.add_agent(0);
  scene.fail_worker(0, 1, 0);  // in round 2, at the same step
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->attempt, 2);
  const Plan held = scene.plan();
  EXPECT_TRUE(only<PutAssignment>(held).empty());
  EXPECT_EQ(held.requeue_at, scene.now + seconds(1));
  scene.advance(seconds(1));
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 1u);
}

TEST(Backoff, ProgressBeginsItAnew) {
  Scene scene(1);
  scene.train();
  scene.fail_worker(0, 1, 0);
  scene.settle();
  scene.status().lastFailure->attempt = 7;
  scene.add_agent(0).progress.emplace();
  scene.agent(0).progress->step = 1;
  scene.fail_worker(0, 1, 0);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->attempt, 1);
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 1u);
}

TEST(Backoff, AClockThatWasSetBackHoldsNobodyLongerThanTheDelay) {
  FailureStatus failure;
  failure.attempt = 3;
  const WallTime now(std::chrono::hours(24 * 365 * 50));
  failure.time = rfc3339(now + std::chrono::hours(5));
  EXPECT_EQ(restart_wait(failure, now, {}), seconds(2));
  failure.time = "nonsense";
  EXPECT_EQ(restart_wait(failure, now, {}), Duration{0});
}

}  // namespace
}  // namespace lockstep::plan
