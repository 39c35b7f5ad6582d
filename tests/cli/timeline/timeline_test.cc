// Tests the table, the trace and the picture of a recording, and the reading of damaged files.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "cli/run/run_job.h"
#include "cli/timeline/chrome_trace.h"
#include "cli/timeline/rank_actions.h"
#include "cli/timeline/recording.h"
#include "cli/timeline/show_timeline.h"
#include "cli/timeline/timeline_svg.h"
#include "cli/timeline/timeline_table.h"
#include "common/base/json.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::cli {
namespace {

using train::TemporaryFolder;

constexpr int64_t kMicroBatches = 3;
constexpr int64_t kMillisecond = 1'000'000;

// A rank that takes turns: forward 2 ms and backward 4 ms of each micro-batch, of which 1 ms each
// is a wait, then 3 ms for reductions and 5 ms for the update; 2 ms are left. Its clock is an hour
// ahead per rank.
RankTimeline a_rank(int64_t rank, int64_t step = 10) {
  constexpr int64_t kHour = 3600 * 1000 * kMillisecond;
  RankTimeline timeline{.round = 2,
                        .rank = rank,
                        .ranks = 2,
                        .stage = rank,
                        .stages = 2,
                        .clock = {.offset_ns = -kHour * rank, .error_ns = 500 * rank},
                        .begin_ns = kHour * rank + 7 * kMillisecond};
  int64_t now = 0;
  const auto add = [&](ActionKind kind, StepPart part, int64_t micro_batch, int64_t length_ms) {
    timeline.records.push_back({.step = step,
                                .action = kind,
                                .part = part,
                                .micro_batch = micro_batch,
                                .version = step - 1,
                                .begin_ns = now,
                                .end_ns = now + length_ms * kMillisecond});
    now += length_ms * kMillisecond;
  };
  for (int64_t i = 0; i < kMicroBatches; ++i) {
    add(ActionKind::kReceiveActivation, StepPart::kCommunication, i, 1);
    add(ActionKind::kForward, StepPart::kForward, i, 1);
    add(ActionKind::kForward, StepPart::kCommunication, i, 1);
    add(ActionKind::kBackward, StepPart::kForward, i, 1);
    add(ActionKind::kBackward, StepPart::kCommunication, i, 1);
    add(ActionKind::kBackward, StepPart::kBackward, i, 2);
  }
  add(ActionKind::kFinishReductions, StepPart::kCommunication, -1, 3);
  add(ActionKind::kUpdate, StepPart::kUpdate, -1, 5);
  now += 2 * kMillisecond;
  timeline.records.push_back({.step = step,
                              .part = StepPart::kCommunication,
                              .begin_ns = now - 2 * kMillisecond,
                              .end_ns = now});
  timeline.steps = {{.step = step, .begin_ns = 0, .end_ns = now}};
  return timeline;
}

Recording a_recording() {
  return {.ranks = {a_rank(0), a_rank(1)}, .notes = {}};
}

std::string write(const TemporaryFolder& folder, const RankTimeline& timeline) {
  return folder.write(timeline_file_name(timeline.steps.back().step, timeline.rank),
                      format_timeline(timeline));
}

// Whether every element of the document is closed, in order.
bool is_well_formed(const std::string& text) {
  std::vector<std::string> open;
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) {
    const size_t end = text.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos || std::ranges::count(tag, '"') % 2 != 0) return false;
    const std::string name = tag.substr(0, tag.find(' '));
    if (tag.starts_with("/")) {
      if (open.empty() || "/" + open.back() != tag) return false;
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty() && text.starts_with("<svg ");
}

TEST(ActionSpans, AreWholeActionsWithTheWaitsInThem) {
  const std::vector<ActionSpan> spans = action_spans(a_rank(1));
  ASSERT_EQ(spans.size(), 3u * kMicroBatches + 3);
  const ActionSpan& forward = spans[1];
  EXPECT_EQ(forward.name(), "forward 0");
  EXPECT_EQ(forward.begin_ns, 8 * kMillisecond) << "on rank 0's clock";
  EXPECT_EQ(forward.end_ns, 10 * kMillisecond);
  EXPECT_TRUE(forward.computes);
  ASSERT_EQ(forward.waits.size(), 1u);
  EXPECT_EQ(forward.waits[0].begin_ns, 9 * kMillisecond);
  EXPECT_EQ(spans[0].name(), "receive activation 0");
  EXPECT_FALSE(spans[0].computes);
  EXPECT_TRUE(spans[0].waits.empty());
  EXPECT_EQ(spans.back().name(), "end of step");
}

TEST(ActionSpans, TellTheChunksOfAStageApart) {
  RankTimeline timeline = a_rank(0);
  timeline.records.resize(2);
  timeline.records[1] = timeline.records[0];
  timeline.records[1].chunk = 1;
  const std::vector<ActionSpan> spans = action_spans(timeline);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name(), "receive activation 0");
  EXPECT_EQ(spans[1].name(), "receive activation 0, chunk 1");
}

TEST(StepUse, CountsEachNanosecondOnce) {
  const std::vector<StepUse> uses = step_uses(a_recording(), 10);
  ASSERT_EQ(uses.size(), 2u);
  for (const StepUse& use : uses) {
    EXPECT_EQ(use.step, 31 * kMillisecond);
    EXPECT_EQ(use.data, 0);
    EXPECT_EQ(use.forward, 6 * kMillisecond);
    EXPECT_EQ(use.backward, 6 * kMillisecond);
    EXPECT_EQ(use.transfers, 3 * kMillisecond);
    EXPECT_EQ(use.collectives, 9 * kMillisecond);
    EXPECT_EQ(use.update, 5 * kMillisecond);
    EXPECT_EQ(use.other(), 2 * kMillisecond);
    EXPECT_DOUBLE_EQ(use.bubble(), 14.0 / 31);
  }
  EXPECT_EQ(bubble_text(uses), "bubble 45.2 % (stage 0: 45.2 %, stage 1: 45.2 %)");
  EXPECT_TRUE(step_uses(a_recording(), 11).empty());
}

TEST(TimelineTable, HasARowForEachRank) {
  EXPECT_EQ(timeline_table(a_recording(), 10),
            "step 10, round 2\n"
            "RANK   STAGE   STEP        DATA    FORWARD   BACKWARD   TRANSFERS   COLLECTIVES   "
            "UPDATE   OTHER   BUBBLE\n"
            "0      0       31.000 ms   0.0 %   19.4 %    19.4 %     9.7 %       29.0 %        "
            "16.1 %   6.5 %   45.2 %\n"
            "1      1       31.000 ms   0.0 %   19.4 %    19.4 %     9.7 %       29.0 %        "
            "16.1 %   6.5 %   45.2 %\n"
            "bubble 45.2 % (stage 0: 45.2 %, stage 1: 45.2 %)\n"
            "clocks aligned to rank 0's within 0.001 ms\n");
  Recording recording{.ranks = {a_rank(0)}, .notes = {}};
  recording.ranks[0].dropped = 12;
  EXPECT_NE(timeline_table(recording, 10).find("up to 12 of a rank's first actions"),
            std::string::npos);
}

TEST(ChromeTrace, HasEachMicroBatchOnceForwardAndBackwardOnEveryRank) {
  const Result<Json> trace = parse_json(chrome_trace(a_recording()));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  std::map<std::string, int> seen;
  double end = 0;
  for (const Json& event : trace->at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_GE(event.at("ts").get<double>(), 0);
    end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
    EXPECT_EQ(event.at("args").at("step"), 10);
    EXPECT_EQ(event.at("args").at("version"), event.at("name") == "end of step" ? 0 : 9);
    ++seen[std::to_string(event.at("pid").get<int>()) + "/" +
           std::to_string(event.at("tid").get<int>()) + " " + event.at("name").get<std::string>()];
  }
  EXPECT_DOUBLE_EQ(end, 31'000) << "the clocks are aligned";
  for (const std::string rank : {"0", "1"}) {
    for (int64_t i = 0; i < kMicroBatches; ++i) {
      const std::string number = " " + std::to_string(i);
      for (const std::string name : {"/0 forward", "/0 backward", "/1 receive activation"}) {
        EXPECT_EQ(seen[rank + name + number], 1) << rank << name << number;
      }
      EXPECT_EQ(seen[rank + "/1 forward" + number + ": wait"], 1);
    }
    EXPECT_EQ(seen[rank + "/0 update"], 1);
    EXPECT_EQ(seen[rank + "/1 finish reductions"], 1);
  }
}

TEST(TimelineSvg, IsWellFormedAndShowsTheBubble) {
  const std::string svg = timeline_svg(a_recording(), 10);
  EXPECT_TRUE(is_well_formed(svg)) << svg;
  EXPECT_FALSE(is_well_formed(svg.substr(0, svg.size() / 2))) << "the check can fail";
  for (const char* part : {"bubble 45.2 % (stage 0: 45.2 %, stage 1: 45.2 %)", "rank 1, stage 1",
                           "forward 2, 2.000 ms", "wait in backward 0"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
}

TEST(TimelineSvg, IsWellFormedWithoutAnythingToShowAndWithManyRanks) {
  EXPECT_TRUE(is_well_formed(timeline_svg(a_recording(), 11)));
  Recording many{.ranks = {}, .notes = {}};
  many.ranks.assign(kPicturedRanksMax + 1, a_rank(0));
  const std::string svg = timeline_svg(many, 10);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_NE(svg.find("the first 64 of 65 ranks"), std::string::npos);
}

TEST(ReadRecording, TakesTheNewestOneOrThatOfTheStep) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("timeline"));
  for (const int64_t step : {10, 20}) {
    for (const int64_t rank : {0, 1}) {
      const RankTimeline timeline = a_rank(rank, step);
      folder.write("timeline/" + timeline_file_name(step, rank), format_timeline(timeline));
    }
  }
  for (const std::string& place : {folder.path(), folder.file("timeline")}) {
    const Result<Recording> newest = read_recording(place, {});
    ASSERT_TRUE(newest.ok()) << newest.error().message;
    EXPECT_EQ(newest->steps(), std::vector<int64_t>{20});
    EXPECT_EQ(newest->ranks, (std::vector<RankTimeline>{a_rank(0, 20), a_rank(1, 20)}));
    EXPECT_TRUE(newest->notes.empty());
    EXPECT_EQ(read_recording(place, 10).value().steps(), std::vector<int64_t>{10});
  }
  const auto error_of = [&](int64_t step) {
    return read_recording(folder.path(), step).error().message;
  };
  EXPECT_EQ(error_of(15), "step 15 is not recorded, expected one such as 20");
  EXPECT_EQ(error_of(21), "step 21 is not recorded, expected one such as 20");
}

TEST(ReadRecording, LeavesOutDamagedFilesAndOtherRounds) {
  const TemporaryFolder folder;
  write(folder, a_rank(1));
  const std::string damaged = folder.write(timeline_file_name(10, 0), "{\"format\": 1}");
  Result<Recording> read = read_recording(folder.path(), {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->ranks.size(), 1u);
  EXPECT_EQ(read->ranks[0].rank, 1);
  ASSERT_EQ(read->notes.size(), 2u);
  EXPECT_TRUE(read->notes[0].starts_with(damaged + ": ")) << read->notes[0];
  EXPECT_EQ(read->notes[1], "1 of 2 ranks have no file");

  RankTimeline older = a_rank(0);
  older.round = 1;
  write(folder, older);
  read = read_recording(folder.path(), {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->notes, (std::vector<std::string>{"1 files are of another round than 2",
                                                   "1 of 2 ranks have no file"}));
}

TEST(ReadRecording, SaysWhyThereIsNone) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_recording(folder.file("missing"), {}).error().code, Code::kNotFound);
  EXPECT_EQ(read_recording(folder.path(), {}).error().code, Code::kNotFound);
  const std::string path = folder.write(timeline_file_name(10, 3), format_timeline(a_rank(1)));
  Result<Recording> read = read_recording(folder.path(), {});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().message, path + ": expected rank 3 as in its name, found 1");
  std::filesystem::resize_file(path, kTimelineBytesMax + 1);
  read = read_recording(folder.path(), {});
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("expected at most 16777216 bytes"), std::string::npos);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_FALSE(read_recording(folder.path(), {}).ok()) << "a folder is no file";
}

TEST(ReadRecording, RefusesMoreThanItsLimits) {
  const TemporaryFolder folder;
  for (int64_t rank = 0; rank <= static_cast<int64_t>(kRecordedRanksMax); ++rank) {
    folder.write(timeline_file_name(10, rank), "");
  }
  EXPECT_EQ(read_recording(folder.path(), {}).error().message,
            "expected files of at most 1024 ranks, found 1025");
  const TemporaryFolder large;
  for (int64_t rank = 0; rank < 17; ++rank) {
    const std::string path = large.write(timeline_file_name(10, rank), "");
    std::filesystem::resize_file(path, kTimelineBytesMax);
  }
  EXPECT_EQ(read_recording(large.path(), {}).error().message,
            "expected a recording of at most 268435456 bytes, found 285212672");
}

TEST(ShowTimeline, PrintsATableAndWritesBothFiles) {
  const TemporaryFolder folder;
  write(folder, a_rank(0));
  write(folder, a_rank(1));
  const std::string trace = folder.file("trace.json");
  const std::string svg = folder.file("step.svg");
  testing::internal::CaptureStdout();
  const int code = show_timeline({.folder = folder.path(), .trace = trace, .svg = svg, .step = {}});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), timeline_table(a_recording(), 10));
  EXPECT_EQ(code, 0);
  EXPECT_EQ(train::read_file(trace), chrome_trace(a_recording()));
  EXPECT_EQ(train::read_file(svg), timeline_svg(a_recording(), 10));
}

TEST(ShowTimeline, SaysWhatWentWrong) {
  const TemporaryFolder folder;
  const auto result_of = [&](const TimelineOptions& options, const std::string& message) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = show_timeline(options);
    testing::internal::GetCapturedStdout();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(message), std::string::npos) << said;
    return code;
  };
  EXPECT_EQ(result_of({.folder = folder.path(), .trace = {}, .svg = {}, .step = {}}, "found none"),
            kExitBadInput);
  write(folder, a_rank(0));
  const std::string nowhere = folder.file("missing/file");
  EXPECT_EQ(result_of({.folder = folder.path(), .trace = nowhere, .svg = {}, .step = {}}, nowhere),
            kExitFailed);
  EXPECT_EQ(result_of({.folder = folder.path(), .trace = {}, .svg = nowhere, .step = 10}, nowhere),
            kExitFailed);
}

}  // namespace
}  // namespace lockstep::cli
