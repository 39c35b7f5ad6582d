// Limits of the client: its request rate, and the length of a watch's lines.
#include <gtest/gtest.h>

#include "controller/kube/line_framer.h"
#include "controller/kube/rate_limiter.h"
#include "controller/loop/timers.h"

namespace lockstep::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LineFramer, FindsTheSameLinesHoweverTheStreamIsSplit) {
  const std::string stream = "{\"a\":1}\n\r\n{\"b\":2}\r\n\n\nlong line\nrest";
  const std::vector<std::string> expected = {"{\"a\":1}", "{\"b\":2}", "long line"};
  for (size_t first = 0; first <= stream.size(); ++first) {
    for (size_t second = first; second <= stream.size(); ++second) {
      LineFramer framer(100);
      std::vector<std::string> lines;
      ASSERT_TRUE(framer.feed(stream.substr(0, first), lines));
      ASSERT_TRUE(framer.feed(stream.substr(first, second - first), lines));
      ASSERT_TRUE(framer.feed(stream.substr(second), lines));
      ASSERT_EQ(lines, expected) << first << " " << second;
      ASSERT_EQ(framer.rest(), "rest");
    }
  }
}

TEST(LineFramer, RefusesALineBeyondItsLimit) {
  LineFramer framer(4);
  std::vector<std::string> lines;
  EXPECT_TRUE(framer.feed("abcd\nab", lines));
  EXPECT_FALSE(framer.feed("cde", lines));
}

TEST(RateLimiter, LetsABurstThroughAndThenItsRateInOrder) {
  ManualClock clock;
  loop::Timers timers(clock);
  RateLimiter limiter(timers, {.per_second = 10, .burst = 3});
  std::vector<int> made;
  for (int i = 0; i < 6; ++i) limiter.submit([&made, i] { made.push_back(i); });
  EXPECT_EQ(made, (std::vector<int>{0, 1, 2}));
  clock.advance(milliseconds(101));
  timers.run_due();
  EXPECT_EQ(made, (std::vector<int>{0, 1, 2, 3}));
  clock.advance(milliseconds(201));
  timers.run_due();
  EXPECT_EQ(made, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(limiter.waiting(), 0u);
}

TEST(RateLimiter, WhatCanWaitLetsTheOthersPassButNotForEver) {
  ManualClock clock;
  loop::Timers timers(clock);
  RateLimiter limiter(timers, {.per_second = 1, .burst = 1});
  std::string made;
  limiter.submit([] {});
  limiter.submit([&made] { made += 'p'; }, loop::ApiPriority::kPatient);
  for (int i = 0; i < 12; ++i) limiter.submit([&made] { made += 'x'; });
  for (int i = 0; i < 13; ++i) {
    clock.advance(milliseconds(1001));
    timers.run_due();
  }
  EXPECT_EQ(made, "xxxxxxxxxpxxx");
}

TEST(RateLimiter, WhatIsUrgentPassesAllOthersButNotForEver) {
  ManualClock clock;
  loop::Timers timers(clock);
  RateLimiter limiter(timers, {.per_second = 1, .burst = 1});
  std::string made;
  limiter.submit([] {});
  for (int i = 0; i < 3; ++i) limiter.submit([&made] { made += 'p'; }, loop::ApiPriority::kPatient);
  for (int i = 0; i < 3; ++i) limiter.submit([&made] { made += 'r'; });
  for (int i = 0; i < 20; ++i) limiter.submit([&made] { made += 'u'; }, loop::ApiPriority::kUrgent);
  for (int i = 0; i < 26; ++i) {
    clock.advance(milliseconds(1001));
    timers.run_due();
  }
  EXPECT_EQ(made, "uuuuuuuuupruuuuuuuupuruurp");
  EXPECT_EQ(limiter.waiting(), 0u);
}

TEST(RateLimiter, LetsNoMoreBeOpenThanAllowedAndOnesThatEndAtOnceMakeNoPile) {
  ManualClock clock;
  loop::Timers timers(clock);
  RateLimiter limiter(timers, {.per_second = 1, .burst = 1e9, .open_max = 2});
  int made = 0;
  for (int i = 0; i < 5; ++i) limiter.submit([&made] { ++made; });
  EXPECT_EQ(made, 2);
  EXPECT_FALSE(timers.next().has_value());
  limiter.end_one();
  EXPECT_EQ(made, 3);
  constexpr int kAtOnce = 1'000'000;
  for (int i = 0; i < kAtOnce; ++i) {
    limiter.submit([&] {
      ++made;
      limiter.end_one();
    });
  }
  for (int i = 0; i < 3; ++i) limiter.end_one();
  EXPECT_EQ(made, 5 + kAtOnce);
  EXPECT_EQ(limiter.waiting(), 0u);
}

TEST(RateLimiter, HoldsEverythingUntilTheTimeThatItIsTold) {
  ManualClock clock;
  loop::Timers timers(clock);
  RateLimiter limiter(timers, {.per_second = 10, .burst = 2});
  int made = 0;
  for (int i = 0; i < 3; ++i) limiter.submit([&made] { ++made; });
  EXPECT_EQ(made, 2);
  limiter.hold_until(timers.now() + seconds(5));
  limiter.hold_until(timers.now() + seconds(2));
  for (int i = 0; i < 3; ++i) limiter.submit([&made] { ++made; }, loop::ApiPriority::kUrgent);
  clock.advance(seconds(5) - Duration{1});
  timers.run_due();
  EXPECT_EQ(made, 2);
  clock.advance(Duration{1});
  timers.run_due();
  EXPECT_EQ(made, 4) << "no more than a burst has gathered";
  limiter.hold_until(timers.now());
  clock.advance(seconds(1));
  timers.run_due();
  EXPECT_EQ(made, 6);
}

}  // namespace
}  // namespace lockstep::kube
