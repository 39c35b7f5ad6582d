#include "controller/loop/work_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "controller/loop/metrics.h"
#include "controller/loop/timers.h"

namespace lockstep::loop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct QueueTest : ::testing::Test {
  ManualClock clock;
  Timers timers{clock};
  int ready = 0;
  WorkQueue queue{timers, {}, [this] { ++ready; }};
  void pass(Duration time) {
    clock.advance(time);
    timers.run_due();
  }
};

TEST_F(QueueTest, AKeyWaitsOnceHoweverOftenItIsAdded) {
  queue.add("a");
  queue.add("b");
  queue.add("a");
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.pop(), "a");
  EXPECT_EQ(queue.pop(), "b");
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST_F(QueueTest, AKeyAddedWhileItIsWorkedOnComesAgainOnceAfterwards) {
  queue.add("a");
  queue.pop();
  queue.add("a");
  queue.add("a");
  EXPECT_EQ(queue.pop(), std::nullopt);
  queue.done("a");
  EXPECT_EQ(queue.pop(), "a");
  queue.done("a");
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST_F(QueueTest, FailuresWaitLongerAndLongerUntilTheyAreForgotten) {
  for (const int wait : {5, 10, 20, 40}) {
    queue.retry("a");
    pass(milliseconds(wait - 1));
    EXPECT_EQ(queue.size(), 0u) << wait;
    pass(milliseconds(1));
    EXPECT_EQ(queue.pop(), "a") << wait;
    queue.done("a");
  }
  queue.forget("a");
  queue.retry("a");
  pass(milliseconds(5));
  EXPECT_EQ(queue.pop(), "a");
  queue.done("a");
  queue.retry("a", seconds(3));
  pass(seconds(2));
  EXPECT_EQ(queue.size(), 0u);
  pass(seconds(1));
  EXPECT_EQ(queue.size(), 1u);
}

TEST_F(QueueTest, TheEarlierOfTwoTimesCounts) {
  queue.add_at("a", timers.now() + seconds(5));
  queue.add_at("a", timers.now() + seconds(9));
  queue.add_at("a", timers.now() + seconds(2));
  pass(seconds(2));
  EXPECT_EQ(queue.pop(), "a");
  queue.done("a");
  pass(seconds(10));
  EXPECT_EQ(queue.size(), 0u);
}

TEST_F(QueueTest, AKeyThatRestsWaitsUnlessItIsUrgent) {
  queue.add("a");
  queue.pop();
  queue.add("a");  // while it is worked on
  queue.rest("a", {.routine = timers.now() + seconds(1), .progress = timers.now() + seconds(1)});
  queue.done("a");
  queue.add("a");
  queue.add_at("a", timers.now() + milliseconds(100));
  queue.add("b");
  EXPECT_EQ(queue.pop(), "b");
  pass(milliseconds(999));
  EXPECT_EQ(queue.pop(), std::nullopt);
  queue.add("a", Urgency::kUrgent);
  EXPECT_EQ(queue.pop(), "a");
  queue.done("a");
  pass(milliseconds(1));
  EXPECT_EQ(queue.pop(), "a");
  queue.done("a");
  queue.add("a");
  EXPECT_EQ(queue.pop(), "a");
}

TEST_F(QueueTest, ProgressRestsLongerThanOtherRoutineWork) {
  queue.rest("a", {.routine = timers.now() + seconds(1), .progress = timers.now() + seconds(2)});
  queue.add("a", Urgency::kProgress);
  pass(seconds(1));
  EXPECT_EQ(queue.pop(), std::nullopt);
  queue.add("a");
  EXPECT_EQ(queue.pop(), "a");
  queue.add("a", Urgency::kProgress);  // while it is worked on
  queue.done("a");
  EXPECT_EQ(queue.pop(), std::nullopt);
  pass(milliseconds(999));
  EXPECT_EQ(queue.pop(), std::nullopt);
  pass(milliseconds(1));
  EXPECT_EQ(queue.pop(), "a");
  queue.done("a");
  queue.add("a", Urgency::kProgress);
  EXPECT_EQ(queue.pop(), "a");
  EXPECT_FALSE(queue.is_urgent("a"));
}

TEST_F(QueueTest, ADroppedKeyNeitherRestsNorRemembersItsFailures) {
  queue.retry("a");
  pass(milliseconds(5));
  queue.pop();
  queue.rest("a", {.routine = timers.now() + seconds(1), .progress = timers.now() + seconds(1)});
  queue.drop("a");
  queue.done("a");
  queue.add("a");
  EXPECT_EQ(queue.pop(), "a");
  queue.done("a");
  queue.retry("a");
  pass(milliseconds(5));  // the first delay again
  EXPECT_EQ(queue.pop(), "a");
}

TEST_F(QueueTest, AnUrgentKeyPassesTheOthersEvenIfItWaitedAlready) {
  for (const char* key : {"a", "b", "c"}) queue.add(key);
  queue.add("d", Urgency::kUrgent);
  queue.add("c", Urgency::kUrgent);
  queue.add("d");  // it stays urgent
  EXPECT_EQ(queue.size(), 4u);
  for (const char* key : {"c", "d", "a", "b"}) EXPECT_EQ(queue.pop(), key);
  queue.add("a", Urgency::kUrgent);
  queue.done("a");
  queue.add("e", Urgency::kUrgent);
  EXPECT_EQ(queue.pop(), "a");
}

TEST_F(QueueTest, OnlyUrgentKeysAreGivenToWhoTakesNoOthers) {
  queue.add("routine");
  EXPECT_EQ(queue.pop(Urgency::kUrgent), std::nullopt);
  queue.add("urgent", Urgency::kUrgent);
  EXPECT_EQ(queue.pop(Urgency::kUrgent), "urgent");
  EXPECT_TRUE(queue.is_urgent("urgent"));
  EXPECT_EQ(queue.pop(Urgency::kUrgent), std::nullopt);
  EXPECT_EQ(queue.pop(), "routine");
  EXPECT_FALSE(queue.is_urgent("routine"));
  EXPECT_FALSE(queue.is_urgent("nobody"));
}

TEST_F(QueueTest, UrgentKeysDoNotKeepTheOthersWaitingForEver) {
  queue.add("routine");
  for (int i = 0; i < 40; ++i) queue.add("urgent" + std::to_string(i), Urgency::kUrgent);
  int before = 0;
  while (queue.pop() != "routine") ++before;
  EXPECT_EQ(before, 15);
}

TEST_F(QueueTest, CountsWhatWaitedAndWorkedForHowLong) {
  queue.add("a");
  pass(seconds(3));
  queue.pop();
  pass(seconds(40));
  EXPECT_EQ(queue.unfinished_seconds(), std::pair(40.0, 40.0));
  queue.retry("a");
  queue.done("a");
  EXPECT_EQ(queue.metrics().adds, 1u);
  EXPECT_EQ(queue.metrics().retries, 1u);
  EXPECT_DOUBLE_EQ(queue.metrics().queue_seconds.sum(), 3);
  EXPECT_DOUBLE_EQ(queue.metrics().work_seconds.sum(), 40);
  EXPECT_EQ(queue.metrics().work_seconds.count(), 1u);
}

TEST(JobMetrics, CountARestartOnceAndARecoveryWhenItIsOver) {
  JobMetrics metrics;
  const WallTime now = *wall_time_from_rfc3339("2026-01-01T00:01:00Z");
  TrainingJobStatus before;
  TrainingJobStatus after;
  after.round = 1;
  after.conditions = {{.type = "Running", .status = "True"}};
  metrics.observe(before, after, "2026-01-01T00:00:18Z", now);
  EXPECT_DOUBLE_EQ(metrics.ready_seconds().sum(), 42);
  before = after;
  after.round = 2;
  after.restarts = 1;
  after.lastFailure =
      FailureStatus{.number = 1, .reason = "Signal", .time = "2026-01-01T00:00:59Z"};
  metrics.observe(before, after, "2026-01-01T00:00:18Z", now);
  before = after;
  metrics.observe(before, after, "2026-01-01T00:00:18Z", now);
  after.lastFailure->recoverySeconds = 1.5;
  after.lastFailure->recovery = {.detectSeconds = 0.25, .formSeconds = 1, .restoreSeconds = 0.25};
  metrics.observe(before, after, "2026-01-01T00:00:18Z", now);
  metrics.observe(after, after, "2026-01-01T00:00:18Z", now);
  EXPECT_EQ(metrics.restarts(), (std::map<std::string, uint64_t>{{"Signal", 1}}));
  EXPECT_DOUBLE_EQ(metrics.recovery_seconds().sum(), 1.5);
  EXPECT_EQ(metrics.ready_seconds().count(), 1u);
  double parts = 0;
  for (size_t i = 0; i < plan::kRecoveryParts.size(); ++i) {
    EXPECT_EQ(metrics.part_seconds(i).count(), 1u) << plan::kRecoveryParts[i].name;
    parts += metrics.part_seconds(i).sum();
  }
  EXPECT_DOUBLE_EQ(parts, 1.5);
  EXPECT_EQ(metrics.recompute_seconds().count(), 0u) << "steps are still being done again";
  before = after;
  after.lastFailure->recovery.recomputeSeconds = 0.5;
  metrics.observe(before, after, "2026-01-01T00:00:18Z", now);
  metrics.observe(after, after, "2026-01-01T00:00:18Z", now);
  EXPECT_EQ(metrics.recompute_seconds().count(), 1u);
  EXPECT_DOUBLE_EQ(metrics.recompute_seconds().sum(), 0.5);
  EXPECT_DOUBLE_EQ(metrics.part_seconds(6).sum(), 1) << "form";
}

TEST(JobMetrics, AReasonThatNobodyKnowsMakesNoSeriesOfItsOwn) {
  JobMetrics metrics;
  for (int i = 1; i <= 100; ++i) {
    TrainingJobStatus after;
    after.lastFailure = FailureStatus{.number = 1, .reason = "Odd" + std::string(i, 'x')};
    metrics.observe({}, after, "", WallTime{});
  }
  EXPECT_EQ(metrics.restarts(), (std::map<std::string, uint64_t>{{"Other", 100}}));
}

TEST(JobMetrics, TheTimeToReadyIsThatOfTheFirstRoundThatTrainsWhateverItsNumber) {
  const WallTime now = *wall_time_from_rfc3339("2026-01-01T00:01:00Z");
  const char* const created = "2026-01-01T00:00:18Z";
  struct Case {
    const char* name;
    std::function<void(TrainingJobStatus&)> change;
    double seconds;  // -1: none
  };
  const Case cases[] = {
      {"the second round", [](TrainingJobStatus& status) { status.round = 2; }, 42},
      {"after a failure",
       [](TrainingJobStatus& status) { status.lastFailure = FailureStatus{.number = 1}; }, -1},
      {"after a suspension while it trained",
       [](TrainingJobStatus& status) { status.trainedSeconds = 1; }, -1},
      {"born suspended",
       [](TrainingJobStatus& status) {
         status.conditions.push_back({.type = "Suspended",
                                      .status = "False",
                                      .lastTransitionTime = "2026-01-01T00:00:55Z"});
       },
       5},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    TrainingJobStatus after;
    after.round = 1;
    after.conditions = {{.type = "Running", .status = "True"}};
    test.change(after);
    JobMetrics metrics;
    metrics.observe({}, after, created, now);
    EXPECT_EQ(metrics.ready_seconds().count(), test.seconds < 0 ? 0u : 1u);
    EXPECT_DOUBLE_EQ(metrics.ready_seconds().sum(), std::max(test.seconds, 0.0));
  }
}

TEST(Goodput, IsTheShareOfTheTimeInStepsThatCount) {
  const WallTime now = *wall_time_from_rfc3339("2026-01-01T01:00:00Z");
  struct Case {
    const char* name;
    const char* state;  // the condition that is true, if any
    const char* since;
    double trained;
    LostStatus lost;
    int64_t step;
    std::optional<double> ratio;
  };
  const Case cases[] = {
      {"has not trained yet", "", "", 0, {}, 0, std::nullopt},
      {"restarts before it ever trained", "Restarting", "2026-01-01T00:59:00Z", 0, {}, 0, {}},
      {"trains without a failure", "Running", "2026-01-01T00:59:00Z", 0, {}, 50, 1.0},
      {"lost a quarter of its time", "", "", 75, {.seconds = 25}, 0, 0.75},
      {"goes on training", "Running", "2026-01-01T00:59:00Z", 15, {.seconds = 25}, 0, 0.75},
      {"is still restarting", "Restarting", "2026-01-01T00:59:00Z", 60, {}, 0, 0.5},
      {"did half of its steps twice", "", "", 10, {.steps = 100}, 100, 0.5},
      {"both", "", "", 75, {.seconds = 25, .steps = 100}, 100, 0.375},
      {"is suspended", "Suspended", "2026-01-01T00:59:00Z", 75, {.seconds = 25}, 0, {}},
      {"is complete", "Complete", "2026-01-01T00:59:00Z", 75, {.seconds = 25}, 0, {}},
      {"has failed", "Failed", "2026-01-01T00:59:00Z", 75, {.seconds = 25}, 0, {}},
      {"began in the future, by its clock", "Running", "2026-01-01T09:00:00Z", 5, {}, 0, 1.0},
  };
  for (const Case& test : cases) {
    TrainingJobStatus status;
    status.trainedSeconds = test.trained;
    status.lost = test.lost;
    status.progress = ProgressStatus{{.step = test.step}};
    if (*test.state != 0) {
      status.conditions = {
          {.type = test.state, .status = "True", .lastTransitionTime = test.since}};
      status.lastFailure = FailureStatus{.time = test.since};
    }
    const std::optional<double> ratio = goodput_ratio(status, now);
    ASSERT_EQ(ratio.has_value(), test.ratio.has_value()) << test.name;
    if (ratio) {
      EXPECT_DOUBLE_EQ(*ratio, *test.ratio) << test.name;
    }
  }
}

TEST(Timers, RunInTheirOrderAndNotThoseThatTheyAdd) {
  ManualClock clock;
  Timers timers(clock);
  std::string order;
  timers.after(seconds(2), [&] { order += 'b'; });
  timers.after(seconds(1), [&] {
    order += 'a';
    timers.after(Duration{0}, [&] { order += 'c'; });
  });
  const Timers::Id dropped = timers.after(seconds(1), [&] { order += 'x'; });
  timers.cancel(dropped);
  clock.advance(seconds(2));
  timers.run_due();
  EXPECT_EQ(order, "ab");
  timers.run_due();
  EXPECT_EQ(order, "abc");
  EXPECT_FALSE(timers.next());
}

}  // namespace
}  // namespace lockstep::loop
