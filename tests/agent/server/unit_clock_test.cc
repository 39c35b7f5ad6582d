// Which pushes and pulls take place, wait, or come too late.
#include "agent/server/unit_clock.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/base/random.h"

namespace lockstep::server {
namespace {

using Verdict = UnitClock::Verdict;

UnitClock clock_of(const Consistency& consistency, std::vector<uint32_t> workers = {0, 1, 2}) {
  return UnitClock(consistency, workers);
}

constexpr Consistency kSynchronous{};
constexpr Consistency kAsynchronous{.kind = ConsistencyKind::kAsynchronous};
constexpr Consistency bounded(uint64_t staleness) {
  return {.kind = ConsistencyKind::kBoundedStaleness, .staleness = staleness};
}

TEST(Consistency, RefusesOptionsOfAnotherKind) {
  EXPECT_TRUE(check_consistency(bounded(4), 2).ok());
  EXPECT_TRUE(check_consistency({.backup_workers = 1}, 2).ok());
  EXPECT_FALSE(check_consistency({.staleness = 4}, 2).ok());
  EXPECT_FALSE(check_consistency({.backup_workers = 2}, 2).ok());
  EXPECT_FALSE(
      check_consistency({.kind = ConsistencyKind::kAsynchronous, .backup_workers = 1}, 2).ok());
}

TEST(UnitClock, OfSynchronousUpdatesWaitsForAllWorkers) {
  UnitClock clock = clock_of(kSynchronous);
  EXPECT_EQ(*clock.judge_pull(0, 0), Verdict::kNow);
  EXPECT_EQ(*clock.judge_pull(0, 1), Verdict::kWait);
  for (const uint32_t worker : {2u, 0u, 1u}) {
    EXPECT_FALSE(clock.is_step_complete());
    EXPECT_EQ(*clock.judge_push(worker, 0), Verdict::kNow);
    clock.take_push(worker, 0);
    EXPECT_EQ(clock.judge_push(worker, 0).error().code, Code::kConflict);
    EXPECT_EQ(*clock.judge_push(worker, 1), Verdict::kWait);
  }
  ASSERT_TRUE(clock.is_step_complete());
  clock.begin_next_step();
  EXPECT_FALSE(clock.is_step_complete());
  EXPECT_EQ(clock.now(), 1u);
  EXPECT_EQ(*clock.judge_pull(0, 1), Verdict::kNow);
  EXPECT_EQ(*clock.judge_push(1, 1), Verdict::kNow);
}

TEST(UnitClock, WithBackupWorkersLeavesTheLastOnesBehind) {
  UnitClock clock = clock_of({.backup_workers = 1});
  for (uint64_t step = 0; step < 3; ++step) {
    for (const uint32_t worker : {0u, 1u}) clock.take_push(worker, step);
    ASSERT_TRUE(clock.is_step_complete());
    clock.begin_next_step();
  }
  EXPECT_EQ(*clock.judge_push(2, 0), Verdict::kLate);
  clock.take_push(2, 0);
  EXPECT_EQ(*clock.judge_push(2, 1), Verdict::kLate);
  EXPECT_EQ(*clock.judge_push(2, 3), Verdict::kNow);  // having skipped the steps in between
  EXPECT_EQ(clock.slowest().worker, 2u);
}

TEST(UnitClock, OfAsynchronousUpdatesLetsNobodyWaitForOthers) {
  UnitClock clock = clock_of(kAsynchronous);
  for (uint64_t step = 0; step < 100; ++step) {
    EXPECT_EQ(*clock.judge_pull(1, step), Verdict::kNow);
    EXPECT_EQ(*clock.judge_push(1, step), Verdict::kNow);
    EXPECT_EQ(*clock.judge_push(1, step + 1), Verdict::kWait);  // for its own earlier push
    clock.take_push(1, step);
  }
  EXPECT_EQ(clock.now(), 100u);
  EXPECT_EQ(clock.judge_push(1, 99).error().message,
            "[server] rank 1: expected a push with clock 100, got 99");
}

TEST(UnitClock, LetsAPullWaitForTheWorkersOwnPushes) {
  for (const Consistency& consistency : {kAsynchronous, bounded(3)}) {
    UnitClock clock = clock_of(consistency);
    EXPECT_EQ(*clock.judge_pull(1, 1), Verdict::kWait);
    EXPECT_TRUE(clock.waits_for_itself(1, 1));
    EXPECT_FALSE(clock.waits_for_itself(1, 0));
    clock.take_push(1, 0);
    EXPECT_EQ(*clock.judge_pull(1, 1), Verdict::kNow);
    EXPECT_FALSE(clock.waits_for_itself(1, 1));
    EXPECT_EQ(*clock.judge_pull(1, 2), Verdict::kWait);
  }
  EXPECT_FALSE(clock_of({}).waits_for_itself(1, 1)) << "it waits for all pushes of the step";
}

TEST(UnitClock, NamesTheSlowestWorker) {
  UnitClock clock = clock_of(kAsynchronous);
  clock.take_push(0, 0);
  clock.take_push(2, 0);
  clock.take_push(2, 1);
  EXPECT_EQ(clock.slowest().worker, 1u);
  EXPECT_EQ(clock.slowest().clock, 0u);
  EXPECT_EQ(clock.clock_of(2), 2u);
}

// Workers that pull and push at random: nobody gets further ahead than the bound, and the slowest
// worker never waits.
TEST(UnitClock, NeverExceedsTheStaleness) {
  for (const uint64_t staleness : {0u, 1u, 3u, 10u}) {
    SCOPED_TRACE(staleness);
    UnitClock clock = clock_of(bounded(staleness));
    Random random(staleness);
    std::vector<uint64_t> own(3);
    uint64_t most = 0;
    for (int turn = 0; turn < 5000; ++turn) {
      const auto worker = static_cast<uint32_t>(random.below(3));
      const uint64_t least = std::min({own[0], own[1], own[2]});
      const bool may = own[worker] - least <= staleness;
      ASSERT_EQ(*clock.judge_pull(worker, own[worker]), may ? Verdict::kNow : Verdict::kWait);
      ASSERT_EQ(*clock.judge_push(worker, own[worker]), may ? Verdict::kNow : Verdict::kWait);
      if (!may) continue;
      most = std::max(most, own[worker] - least);
      clock.take_push(worker, own[worker]++);
    }
    EXPECT_EQ(most, staleness);
  }
}

TEST(UnitClock, RefusesStrangers) {
  UnitClock clock = clock_of(kAsynchronous);
  EXPECT_EQ(clock.judge_push(5, 0).error().code, Code::kConflict);
  EXPECT_EQ(clock.judge_pull(5, 0).error().message, "[server] rank 5 is no worker of this view");
}

TEST(UnitClock, ForgetsWorkersThatLeaveAndStartsNewOnesWithTheSlowest) {
  UnitClock clock = clock_of(bounded(1));
  for (const uint32_t worker : {0u, 1u}) {
    for (uint64_t step = 0; step < 2; ++step) clock.take_push(worker, step);
  }
  EXPECT_EQ(*clock.judge_pull(0, 2), Verdict::kWait);
  const std::vector<uint32_t> left = {0, 1};
  clock.set_workers(left);
  EXPECT_EQ(*clock.judge_pull(0, 2), Verdict::kNow);
  EXPECT_EQ(clock.judge_pull(2, 2).error().code, Code::kConflict);
  const std::vector<uint32_t> joined = {0, 1, 7};
  clock.set_workers(joined);
  EXPECT_EQ(clock.clock_of(7), 2u);
}

TEST(UnitClock, CompletesAStepThatOnlyTheLostWorkerLacked) {
  UnitClock clock = clock_of(kSynchronous);
  clock.take_push(0, 0);
  clock.take_push(1, 0);
  EXPECT_FALSE(clock.is_step_complete());
  const std::vector<uint32_t> left = {0, 1};
  clock.set_workers(left);
  EXPECT_TRUE(clock.is_step_complete());
}

}  // namespace
}  // namespace lockstep::server
