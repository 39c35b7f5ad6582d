// Real workers that are the stages of a pipeline record what they do.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "common/api/timeline.h"
#include "common/layout/pipeline_schedule.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

constexpr int64_t kMicroBatches = 4;

WorkerWorld::Options two_stages() {
  WorkerWorld::Options options{.nodes = 2, .pipeline = 2};
  options.train.model = {.layers = 2, .width = 16, .heads = 2, .context = 16};
  options.train.steps = 10;
  options.train.batch = {.global = kMicroBatches, .micro = 1};
  options.train.timeline = {.everySteps = 4, .steps = 2};
  return options;
}

RankTimeline timeline_of(const WorkerWorld& world, int64_t step, int64_t rank) {
  const std::string path = world.checkpoints() + "/timeline/" + timeline_file_name(step, rank);
  const Result<RankTimeline> read = parse_timeline(read_file(path));
  EXPECT_TRUE(read.ok()) << path << ": " << read.error().message;
  return read.ok() ? *read : RankTimeline();
}

// Counts the actions of a step: (kind, micro-batch) to how often it began.
std::map<std::pair<ActionKind, int64_t>, int> actions_of(const RankTimeline& timeline,
                                                         int64_t step) {
  std::map<std::pair<ActionKind, int64_t>, int> counts;
  const TimelineRecord* last = nullptr;
  for (const TimelineRecord& record : timeline.records) {
    if (record.step != step || !record.action) continue;
    const bool goes_on =
        last != nullptr && last->action == record.action && last->micro_batch == record.micro_batch;
    if (!goes_on) ++counts[{*record.action, record.micro_batch}];
    last = &record;
  }
  return counts;
}

// The records lie back to back and fill their step.
void expect_no_gap(const RankTimeline& timeline, const TimelineStep& step) {
  int64_t end_ns = step.begin_ns;
  for (const TimelineRecord& record : timeline.records) {
    if (record.step != step.step) continue;
    EXPECT_EQ(record.begin_ns, end_ns);
    EXPECT_EQ(record.version, step.step - 1);
    end_ns = record.end_ns;
  }
  EXPECT_EQ(end_ns, step.end_ns);
}

// When the forward of a micro-batch began or ended, on rank 0's clock.
int64_t forward_time(const RankTimeline& timeline, int64_t micro_batch,
                     int64_t TimelineRecord::*time) {
  for (const TimelineRecord& record : timeline.records) {
    if (record.action == ActionKind::kForward && record.micro_batch == micro_batch) {
      return timeline.begin_ns + timeline.clock.offset_ns + record.*time;
    }
  }
  ADD_FAILURE() << "no forward of micro-batch " << micro_batch;
  return 0;
}

TEST(TimelineOfWorkers, HasTheActionsOfTheScheduleOnEachStage) {
  WorkerWorld world(two_stages());
  world.run();
  const Result<PipelineSchedule> schedule = pipeline_schedule(
      {.kind = PipelineKind::kOneForwardOneBackward, .stages = 2, .micro_batches = kMicroBatches});
  ASSERT_TRUE(schedule.ok());
  for (const int64_t stage : {0, 1}) {
    for (const int64_t last : {4, 8}) {
      const RankTimeline timeline = timeline_of(world, last, stage);
      EXPECT_EQ(timeline.stage, stage);
      EXPECT_EQ(timeline.stages, 2);
      ASSERT_EQ(timeline.steps.size(), 2u);
      for (const TimelineStep& step : timeline.steps) {
        const auto counts = actions_of(timeline, step.step);
        const auto& expected = (*schedule)[static_cast<size_t>(stage)];
        EXPECT_EQ(counts.size(), expected.size());
        for (const Action& action : expected) {
          EXPECT_EQ(counts.at({action.kind, action.micro_batch}), 1)
              << action_name(action.kind) << " " << action.micro_batch;
        }
        expect_no_gap(timeline, step);
      }
      EXPECT_EQ(timeline.steps[1].step, last);
    }
  }
  EXPECT_FALSE(
      std::filesystem::exists(world.checkpoints() + "/timeline/" + timeline_file_name(10, 0)))
      << "only whole recordings are written";
}

TEST(TimelineOfWorkers, OrdersWhatDependsOnEachOtherOnOneClock) {
  WorkerWorld world(two_stages());
  world.run();
  const RankTimeline first = timeline_of(world, 8, 0);
  const RankTimeline second = timeline_of(world, 8, 1);
  const int64_t error = first.clock.error_ns + second.clock.error_ns;
  EXPECT_GT(error, 0);
  for (int64_t i = 0; i < kMicroBatches; ++i) {
    EXPECT_LE(forward_time(first, i, &TimelineRecord::end_ns),
              forward_time(second, i, &TimelineRecord::begin_ns) + error)
        << "stage 1 needs the result of stage 0 for micro-batch " << i;
  }
}

TEST(TimelineOfWorkers, ChangesNothingInTheTraining) {
  WorkerWorld::Options options = two_stages();
  WorkerWorld recorded(options);
  recorded.run();
  options.train.timeline = {};
  WorkerWorld plain(options);
  plain.run();
  EXPECT_EQ(recorded.metric("loss"), plain.metric("loss"));
  EXPECT_EQ(recorded.checkpoint_bytes(10, "model"), plain.checkpoint_bytes(10, "model"));
  EXPECT_FALSE(std::filesystem::exists(plain.checkpoints() + "/timeline"));
}

TEST(TimelineOfWorkers, IsLostWithAWarningIfItCannotBeWritten) {
  WorkerWorld::Options options = two_stages();
  WorkerWorld world(options);
  std::filesystem::create_directory(world.checkpoints());
  std::ofstream(world.checkpoints() + "/timeline") << "a file";
  world.run();
  for (const int64_t rank : {0, 1}) {
    const std::string log = world.log(rank);
    const size_t first = log.find("files of the timeline are lost");
    ASSERT_NE(first, std::string::npos) << log;
    EXPECT_EQ(log.find("files of the timeline are lost", first + 1), std::string::npos) << log;
  }
}

}  // namespace
}  // namespace lockstep::train
