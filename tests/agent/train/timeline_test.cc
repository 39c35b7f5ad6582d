#include "agent/train/timeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <set>

#include "agent/comm/make_communicator.h"
#include "agent/train/timeline_files.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

RankTimeline timeline_of(int64_t step, int64_t rank, int64_t ranks = 2) {
  return {.rank = rank, .ranks = ranks, .steps = {{.step = step, .end_ns = 10}}};
}

TEST(Timeline, RecordsTheLastStepsOfEachRange) {
  const auto recorded = [](const TimelineSpec& spec) {
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= 12; ++step) {
      if (is_recorded(spec, step)) steps.push_back(step);
    }
    return steps;
  };
  EXPECT_EQ(recorded({.everySteps = 0}), std::vector<int64_t>());
  EXPECT_EQ(recorded({.everySteps = 5}), (std::vector<int64_t>{5, 10}));
  EXPECT_EQ(recorded({.everySteps = 5, .steps = 2}), (std::vector<int64_t>{4, 5, 9, 10}));
  EXPECT_EQ(recorded({.everySteps = 3, .steps = 3}).size(), 12u);
}

TEST(TimelineFiles, AreWholeOrNotThere) {
  const TemporaryFolder folder;
  const std::string path = folder.file("timeline");
  ASSERT_TRUE(write_timeline_file(path, timeline_of(4, 1)).ok());
  ASSERT_TRUE(write_timeline_file(path, timeline_of(4, 1)).ok()) << "a resumed run writes it anew";
  EXPECT_EQ(names_in(path), std::set<std::string>{timeline_file_name(4, 1)});
  const auto read = parse_timeline(read_file(path + "/" + timeline_file_name(4, 1)));
  EXPECT_EQ(read.value(), timeline_of(4, 1));
}

TEST(TimelineFiles, StayUntilThereAreTooMany) {
  const TemporaryFolder folder;
  const std::string path = folder.file("timeline");
  const auto last = static_cast<int64_t>(kTimelinesKept) + 3;
  for (int64_t step = 1; step <= last; ++step) {
    for (const int64_t rank : {0, 1}) {
      ASSERT_TRUE(write_timeline_file(path, timeline_of(step, rank)).ok());
    }
  }
  folder.write("timeline/notes.txt", "mine");
  ASSERT_TRUE(remove_old_timelines(path, {.step = last, .ranks = 2}).ok());
  const std::set<std::string> names = names_in(path);
  EXPECT_EQ(names.size(), 2 * kTimelinesKept + 1);
  EXPECT_FALSE(names.contains(timeline_file_name(3, 0)));
  EXPECT_TRUE(names.contains(timeline_file_name(4, 0)));
  EXPECT_TRUE(names.contains(timeline_file_name(last, 1)));
  EXPECT_TRUE(names.contains("notes.txt"));
}

TEST(TimelineFiles, OfLaterStepsOtherWorldsAndInterruptedWritesAreRemoved) {
  const TemporaryFolder folder;
  const std::string path = folder.file("timeline");
  for (const int64_t step : {10, 20, 30}) {
    for (const int64_t rank : {0, 1, 2}) {
      ASSERT_TRUE(write_timeline_file(path, timeline_of(step, rank, 3)).ok());
    }
  }
  folder.write("timeline/.unfinished-" + timeline_file_name(10, 0), "{");
  folder.write("timeline/.unfinished-" + timeline_file_name(20, 1), "{");
  ASSERT_TRUE(remove_old_timelines(path, {.step = 20, .ranks = 2}).ok());
  EXPECT_EQ(names_in(path),
            (std::set<std::string>{timeline_file_name(10, 0), timeline_file_name(10, 1),
                                   timeline_file_name(20, 0), timeline_file_name(20, 1),
                                   ".unfinished-" + timeline_file_name(20, 1)}))
      << "rank 1 may still write that one";
}

TEST(TimelineFiles, NameTheFolderThatCannotBeWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.file("missing/timeline");
  const Status written = write_timeline_file(path, timeline_of(4, 1));
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find(path), std::string::npos) << written.error().message;
  EXPECT_EQ(written.error().blame, Blame::kStorage);
  const Status removed = remove_old_timelines(path, {.step = 4, .ranks = 2});
  ASSERT_FALSE(removed.ok());
  EXPECT_NE(removed.error().message.find(path), std::string::npos) << removed.error().message;
}

std::unique_ptr<comm::Communicator> single_rank() {
  comm::CommOptions options{.job_uid = "test", .round = 1, .world_hash = "w", .key = "k"};
  options.peers.resize(1);
  return comm::make_communicator(options).value();
}

// Records steps 1 to 6 of a world of one rank, each with nothing in it.
void record_steps(Timeline& timeline) {
  for (int64_t step = 1; step <= 6; ++step) {
    parallel::TimelineRecorder* recorder = timeline.recorder_of(step);
    EXPECT_EQ(recorder != nullptr, step % 3 != 1) << step;
    if (recorder != nullptr) {
      recorder->begin_step(TimePoint(std::chrono::seconds(step)));
      recorder->end_step(TimePoint(std::chrono::seconds(step + 1)));
    }
    EXPECT_TRUE(timeline.step_done(step).ok()) << step;
  }
}

TEST(Timeline, WritesAFileAtTheEndOfEachRecording) {
  const TemporaryFolder folder;
  const auto world = single_rank();
  const SystemClock clock;
  const std::string path = folder.file("timeline");
  Timeline timeline({.spec = {.everySteps = 3, .steps = 2}, .folder = path, .round = 4}, *world,
                    clock);
  record_steps(timeline);
  EXPECT_EQ(names_in(path),
            (std::set<std::string>{timeline_file_name(3, 0), timeline_file_name(6, 0)}));
  const auto read = parse_timeline(read_file(path + "/" + timeline_file_name(6, 0)));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->round, 4);
  ASSERT_EQ(read->steps.size(), 2u);
  EXPECT_EQ(read->steps[0].step, 5);
  EXPECT_EQ(read->begin_ns, 5'000'000'000);
}

TEST(Timeline, ThatCannotBeWrittenStopsNoTraining) {
  const TemporaryFolder folder;
  const auto world = single_rank();
  const SystemClock clock;
  Timeline timeline({.spec = {.everySteps = 3, .steps = 2}, .folder = folder.file("a/b")}, *world,
                    clock);
  record_steps(timeline);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

}  // namespace
}  // namespace lockstep::train
