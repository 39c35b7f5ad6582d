#include "common/api/hang_limit.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lockstep {
namespace {

TEST(HangLimit, IsFiveMedianStepsButNotBelowTheFloor) {
  using std::chrono::seconds;
  HangLimit limit(seconds(20), seconds(600));
  EXPECT_EQ(limit.of_next_step(), seconds(600)) << "nothing is known of the steps yet";
  for (int i = 0; i < 3; ++i) limit.add_step(seconds(1));
  EXPECT_EQ(limit.of_next_step(), seconds(20));
  for (int i = 0; i < 6; ++i) limit.add_step(seconds(8));
  EXPECT_EQ(limit.of_next_step(), seconds(40));
  limit.add_step(seconds(300));
  EXPECT_EQ(limit.of_next_step(), seconds(40)) << "a median";
  limit.note_pause();
  EXPECT_EQ(limit.of_next_step(), seconds(600));
  limit.add_step(seconds(8));
  EXPECT_EQ(limit.of_next_step(), seconds(40));
  for (int i = 0; i < 30; ++i) limit.add_step(seconds(1));
  EXPECT_EQ(limit.of_next_step(), seconds(20)) << "the last steps alone";
  for (int i = 0; i < 15; ++i) limit.add_step(seconds(500));
  EXPECT_EQ(limit.of_next_step(), seconds(600));
}

TEST(HangLimit, GrowsWithTheLongestSteps) {
  using std::chrono::seconds;
  HangLimit limit(seconds(20), seconds(600), 2.5);
  for (int i = 0; i < 3; ++i) limit.add_step(seconds(8));
  EXPECT_EQ(limit.of_next_step(), seconds(100));
}

// A step that empties the pipeline of 8 stages lasts until its last micro-batch has come back
// through the 7 others.
TEST(LongestStep, IsTheOneThatEmptiesThePipelineOfPipeDream) {
  WorldAssignment world{.pipeline = 8, .data = 2};
  world.layout.schedule = "1f1b";
  EXPECT_EQ(longest_step(world, {.global = 16, .micro = 8}), 1);
  world.layout.schedule = "pipedream";
  EXPECT_EQ(longest_step(world, {.global = 16, .micro = 8}), 8);
  EXPECT_EQ(longest_step(world, {.global = 16, .micro = 2}), 1 + 7.0 / 4);
  EXPECT_EQ(longest_step(world, {.global = 16}), 1 + 7.0 / 8);
  EXPECT_EQ(longest_step(world, {.global = 1024}), 1 + 7.0 / 32);
}

}  // namespace
}  // namespace lockstep
