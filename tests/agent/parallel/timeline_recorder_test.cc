#include "agent/parallel/timeline_recorder.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lockstep::parallel {
namespace {

using std::chrono::nanoseconds;

constexpr TimePoint kBegin{nanoseconds(5'000)};

TimePoint at(int64_t ns) {
  return kBegin + nanoseconds(ns);
}

// Records a step of `count` forwards, each 10 ns long.
void record_step(TimelineRecorder& recorder, int64_t step, int64_t count, int64_t begin_ns) {
  recorder.expect_step(step);
  recorder.begin_step(at(begin_ns));
  for (int64_t i = 0; i < count; ++i) {
    const Action forward{.kind = ActionKind::kForward, .micro_batch = i, .chunk = 1};
    recorder.add(&forward, StepPart::kForward,
                 {at(begin_ns + 10 * i), at(begin_ns + 10 * (i + 1))});
  }
  recorder.end_step(at(begin_ns + 10 * count));
}

TEST(TimelineRecorder, KeepsEachActionWithItsTimeSinceTheFirstStep) {
  TimelineRecorder recorder(8);
  EXPECT_FALSE(recorder.has_steps());
  record_step(recorder, 7, 2, 0);
  record_step(recorder, 8, 1, 100);
  EXPECT_TRUE(recorder.has_steps());
  RankTimeline timeline{.rank = 3, .ranks = 4};
  recorder.move_to(timeline);
  EXPECT_EQ(timeline.rank, 3);
  EXPECT_EQ(timeline.begin_ns, 5'000);
  EXPECT_EQ(timeline.dropped, 0);
  EXPECT_EQ(timeline.steps, (std::vector<TimelineStep>{{7, 0, 20}, {8, 100, 110}}));
  ASSERT_EQ(timeline.records.size(), 3u);
  EXPECT_EQ(timeline.records[1], (TimelineRecord{.step = 7,
                                                 .action = ActionKind::kForward,
                                                 .part = StepPart::kForward,
                                                 .micro_batch = 1,
                                                 .chunk = 1,
                                                 .version = 6,
                                                 .begin_ns = 10,
                                                 .end_ns = 20}));
  EXPECT_EQ(timeline.records[2].version, 7);
}

TEST(TimelineRecorder, ReplacesTheOldestRecordsAndCountsThem) {
  TimelineRecorder recorder(4);
  record_step(recorder, 1, 6, 0);
  RankTimeline timeline;
  recorder.move_to(timeline);
  EXPECT_EQ(timeline.dropped, 2);
  ASSERT_EQ(timeline.records.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(timeline.records[i].micro_batch, static_cast<int64_t>(i) + 2);
  }
}

TEST(TimelineRecorder, BeginsAnewAfterItsRecordsWereTaken) {
  TimelineRecorder recorder(4);
  record_step(recorder, 1, 6, 0);
  RankTimeline timeline;
  recorder.move_to(timeline);
  EXPECT_FALSE(recorder.has_steps());
  record_step(recorder, 9, 1, 1'000);
  recorder.move_to(timeline);
  EXPECT_EQ(timeline.begin_ns, 6'000);
  EXPECT_EQ(timeline.dropped, 0);
  EXPECT_EQ(timeline.steps, (std::vector<TimelineStep>{{9, 0, 10}}));
  ASSERT_EQ(timeline.records.size(), 1u);
  EXPECT_EQ(timeline.records[0].begin_ns, 0);
}

TEST(TimelineRecorder, RecordsWithoutAnActionConcernNoMicroBatch) {
  TimelineRecorder recorder(1);
  recorder.expect_step(1);
  recorder.begin_step(at(0));
  recorder.add(nullptr, StepPart::kUpdate, {at(0), at(1)});
  recorder.end_step(at(1));
  RankTimeline timeline;
  recorder.move_to(timeline);
  EXPECT_FALSE(timeline.records[0].action);
  EXPECT_EQ(timeline.records[0].micro_batch, -1);
}

}  // namespace
}  // namespace lockstep::parallel
