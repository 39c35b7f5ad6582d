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

}  // namespace
}  // namespace lockstep
