// A worker's steps next to servers in this process.
#include "agent/train/clicks/click_step.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "agent/train/servers/round_plan.h"
#include "tests/agent/server/servers.h"

namespace lockstep::train {
namespace {

const SystemClock kClock;

TrainSpec spec() {
  TrainSpec train;
  train.model = {.family = kLogisticRegression};
  train.optimizer = {.name = "sgd", .weightDecay = 0};
  return train;
}

test::ServersSetup two_workers(server::Consistency consistency) {
  return {
      .catalog = click_catalog(spec(), {}).value(), .workers = {0, 1}, .consistency = consistency};
}

ClickRows rows_of(uint64_t key) {
  ClickRows rows;
  rows.labels = {1};
  rows.row_begin = {0, 1};
  rows.keys = {key};
  rows.values = {1};
  rows.columns = {0};
  return rows;
}

// A worker with its steps.
struct Stepper {
  Stepper(const test::Servers& servers, uint32_t rank)
      : worker(servers, rank), step(*worker.parameters, spec().model, {}, kClock) {}
  test::Worker worker;
  ClickStep step;
};

size_t waiting_calls(test::Servers& servers) {
  size_t waiting = 0;
  for (size_t i = 0; i < 2; ++i) {
    for (const server::Unit::Report& unit : servers[i].report().units) waiting += unit.waiting;
  }
  return waiting;
}

TEST(ClickStep, PullsWhatTheNextStepNeedsAheadOfTime) {
  test::Servers servers(two_workers({}));
  servers.start();
  Stepper first(servers, 0);
  Stepper second(servers, 1);
  const ClickRows one = rows_of(1);
  const ClickRows two = rows_of(2);
  const auto read_two = [&]() -> Result<const ClickRows*> { return &two; };
  ASSERT_TRUE(first.step.train(one, {.clock = 0, .learning_rate = 1}, read_two).ok());
  EXPECT_TRUE(test::eventually([&] { return waiting_calls(servers) >= 2; }))
      << "the bias and the row of step 1, for the other worker's step 0";
  ASSERT_TRUE(second.step.train(one, {.clock = 0, .learning_rate = 1}).ok());
  EXPECT_TRUE(test::eventually([&] { return waiting_calls(servers) == 0; }));
  ASSERT_TRUE(first.step.train(two, {.clock = 1, .learning_rate = 1}).ok());
}

TEST(ClickStep, SeesItsOwnPushesAlsoWhereNobodyWaits) {
  test::Servers servers(two_workers({.kind = server::ConsistencyKind::kAsynchronous}));
  servers.start();
  Stepper worker(servers, 0);
  const ClickRows one = rows_of(1);
  const auto read_one = [&]() -> Result<const ClickRows*> { return &one; };
  double last = 1;
  for (uint64_t clock = 0; clock < 200; ++clock) {
    const auto done = worker.step.train(one, {.clock = clock, .learning_rate = 0.1}, read_one);
    ASSERT_TRUE(done.ok());
    ASSERT_LT(done->loss_sum, last) << clock;
    last = done->loss_sum;
  }
}

TEST(ClickStep, TellsWhyTheNextRowsCannotBeRead) {
  test::Servers servers(two_workers({.kind = server::ConsistencyKind::kAsynchronous}));
  servers.start();
  Stepper worker(servers, 0);
  const auto fail = []() -> Result<const ClickRows*> { return invalid("[data] line 7"); };
  const auto failed = worker.step.train(rows_of(1), {.clock = 0, .learning_rate = 1}, fail);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "[data] line 7");
  const auto none = []() -> Result<const ClickRows*> { return nullptr; };
  EXPECT_TRUE(worker.step.train(rows_of(2), {.clock = 1, .learning_rate = 1}, none).ok());
}

TEST(ClickStep, CanBeGivenOtherRowsThanItHasPulled) {
  test::Servers servers(two_workers({.kind = server::ConsistencyKind::kAsynchronous}));
  servers.start();
  Stepper worker(servers, 0);
  const ClickRows one = rows_of(1);
  const auto read_one = [&]() -> Result<const ClickRows*> { return &one; };
  ASSERT_TRUE(worker.step.train(one, {.clock = 0, .learning_rate = 1}, read_one).ok());
  worker.step.forget_next();
  const auto other = worker.step.train(rows_of(2), {.clock = 1, .learning_rate = 1});
  ASSERT_TRUE(other.ok());
  std::vector<double> logits;
  ASSERT_TRUE(worker.step.predict(rows_of(2), 2, logits).ok());
  EXPECT_GT(logits.front(), 1) << "two steps of the bias, and one of the row";
}

}  // namespace
}  // namespace lockstep::train
