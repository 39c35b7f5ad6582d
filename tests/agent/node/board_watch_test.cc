#include "agent/node/board_watch.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Bench {
  std::array<uint64_t, CollectiveBoard::kBytes / 8> memory{};
  CollectiveBoard board{memory.data()};
  BoardWatch watch;
  TimePoint now{std::chrono::hours(10)};

  BoardWatch::RankHealth poll() { return watch.poll(board, now); }
  // Looks once a second, which is the agent's lowest rate.
  BoardWatch::RankHealth poll_for(Duration time, bool beats) {
    BoardWatch::RankHealth health;
    for (const TimePoint end = now + time; now < end;) {
      now += seconds(1);
      if (beats) board.beat();
      health = poll();
    }
    return health;
  }
};

RankWait wait_since(TimePoint since) {
  return {.operation = "all_reduce",
          .number = 17,
          .group = 5,
          .size = 2,
          .ranks = "0, 3",
          .waits_for = {.ranks = {3, 1, -1, -1, -1, -1, -1, -1}},
          .since_nanoseconds = since.time_since_epoch().count()};
}

TEST(BoardWatch, TellsAWaitOnceItHasLasted) {
  Bench bench;
  bench.board.set_wait(wait_since(bench.now));
  EXPECT_FALSE(bench.poll_for(seconds(9), true).wait);
  const TimePoint since = bench.now - seconds(9);
  const BoardWatch::RankHealth health = bench.poll_for(seconds(1), true);
  ASSERT_TRUE(health.wait);
  EXPECT_EQ(
      *health.wait,
      (WorkerWait{
          .operation = "all_reduce #17", .ranks = "0, 3", .group_size = 2, .waits_for = {3, 1}}));
  EXPECT_EQ(health.waits_since, since);
  EXPECT_FALSE(health.is_lifeless);
  bench.board.clear_wait();
  EXPECT_FALSE(bench.poll().wait);
}

TEST(BoardWatch, KnowsALifelessRankByItsBeats) {
  Bench bench;
  EXPECT_FALSE(bench.poll_for(seconds(60), false).is_lifeless) << "it has never had a beat";
  EXPECT_FALSE(bench.poll_for(seconds(60), true).is_lifeless);
  EXPECT_FALSE(bench.poll_for(seconds(4), false).is_lifeless);
  EXPECT_TRUE(bench.poll_for(seconds(1), false).is_lifeless);
  EXPECT_FALSE(bench.poll_for(seconds(1), true).is_lifeless);
}

TEST(BoardWatch, TimeInWhichNobodyLookedDoesNotCount) {
  Bench bench;
  bench.poll_for(seconds(3), true);
  bench.now += seconds(600);
  EXPECT_FALSE(bench.poll().is_lifeless);
  EXPECT_TRUE(bench.poll_for(seconds(5), false).is_lifeless);
}

TEST(BoardWatch, WhatAWorkerWritesWildlyIsTakenWithinBounds) {
  Bench bench;
  bench.memory.fill(~uint64_t{1});
  const BoardWatch::RankHealth health = bench.poll();
  for (const GroupActivity& group : bench.board.groups()) EXPECT_LE(group.ranks.size(), 64u);
  if (health.wait) {
    EXPECT_LE(health.wait->ranks.size(), 64u);
    EXPECT_LE(health.wait->waits_for.size(), AwaitedRanks::kRanksMax);
    EXPECT_GE(health.wait->group_size, 0);
  }
}

}  // namespace
}  // namespace lockstep::node
