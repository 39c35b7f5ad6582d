#include "common/api/timeline.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace lockstep {
namespace {

RankTimeline a_timeline() {
  return {.round = 3,
          .rank = 5,
          .ranks = 8,
          .stage = 1,
          .stages = 2,
          .clock = {.offset_ns = -1'234'567, .error_ns = 890},
          .begin_ns = 987'654'321'000,
          .dropped = 2,
          .steps = {{.step = 41, .begin_ns = 0, .end_ns = 90}, {42, 100, 190}},
          .records = {{.step = 41, .part = StepPart::kUpdate, .version = 40, .end_ns = 5},
                      {.step = 41,
                       .action = ActionKind::kForward,
                       .part = StepPart::kCommunication,
                       .micro_batch = 7,
                       .chunk = 1,
                       .version = 40,
                       .begin_ns = 5,
                       .end_ns = 60},
                      {.step = 42,
                       .action = ActionKind::kFinishReductions,
                       .part = StepPart::kCommunication,
                       .version = 41,
                       .begin_ns = 100,
                       .end_ns = 100}}};
}

TEST(Timeline, IsReadAsItWasWritten) {
  EXPECT_EQ(parse_timeline(format_timeline(a_timeline())).value(), a_timeline());
}

TEST(Timeline, EveryActionAndPartHasANameThatIsReadBack) {
  RankTimeline timeline = a_timeline();
  timeline.records.clear();
  for (int kind = 0; kind <= static_cast<int>(ActionKind::kUpdate); ++kind) {
    for (int part = 0; part < kStepParts; ++part) {
      timeline.records.push_back({.step = 41,
                                  .action = static_cast<ActionKind>(kind),
                                  .part = static_cast<StepPart>(part)});
    }
  }
  EXPECT_EQ(parse_timeline(format_timeline(timeline)).value(), timeline);
}

TEST(Timeline, AFullFileIsWithinTheLimits) {
  RankTimeline timeline = a_timeline();
  TimelineRecord record = timeline.records[1];
  record.begin_ns = record.end_ns = (int64_t{1} << 46) - 1;
  record.micro_batch = 1'000'000;
  timeline.records.assign(kTimelineRecordsMax, record);
  const std::string text = format_timeline(timeline);
  EXPECT_LT(text.size(), kTimelineBytesMax);
  EXPECT_TRUE(parse_timeline(text).ok());
}

TEST(Timeline, SaysWhatIsWrongInAFile) {
  struct Case {
    const char* member;
    Json value;
    const char* message;
  };
  const Json step = {41, 0, 90};
  const Json record = {41, "forward", "forward", 0, 0, 40, 0, 10};
  const auto changed = [](Json list, size_t index, Json value) {
    list[index] = std::move(value);
    return Json::array({list});
  };
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const std::vector<Case> cases = {
      {"format", "lockstep-timeline/2", "[timeline] format: expected lockstep-timeline/1"},
      {"round", -1, "[timeline] round: expected 0 to"},
      {"rank", 8, "[timeline] rank: expected 0 to 7, found 8"},
      {"ranks", 0, "[timeline] ranks: expected 1 to"},
      {"stage", 2, "[timeline] stage: expected 0 to 1, found 2"},
      {"stages", 9, "[timeline] stages: expected 1 to 8, found 9"},
      {"clockOffsetNanoseconds", kMax, "[timeline] clockOffsetNanoseconds: expected"},
      {"clockErrorNanoseconds", -1, "[timeline] clockErrorNanoseconds: expected 0 to"},
      {"beginNanoseconds", 1.5, "beginNanoseconds"},
      {"dropped", "none", "dropped"},
      {"steps", 1, "[timeline] steps: expected a list"},
      {"steps", Json::array(), "[timeline] steps: expected at least one"},
      {"steps", Json::array({1}), "[timeline] steps[0]: expected 3 integers"},
      {"steps", changed(step, 0, 0), "[timeline] steps[0]: expected a step and its ascending"},
      {"steps", changed(step, 1, 91), "[timeline] steps[0]: expected a step and its ascending"},
      {"steps", changed(step, 2, kMax), "[timeline] steps[0]: expected a step and its ascending"},
      {"steps", Json(std::vector<int>(kTimelineStepsMax + 1)),
       "[timeline] steps: expected at most 1000 items, found 1001"},
      {"records", Json::array({Json::array()}), "[timeline] records[0]: expected 8 values"},
      {"records", changed(record, 1, "jump"), "[timeline] records[0]: expected the name"},
      {"records", changed(record, 1, 1), "[timeline] records[0]: expected the name"},
      {"records", changed(record, 2, "forwards"), "[timeline] records[0]: expected the name"},
      {"records", changed(record, 0, 0), "[timeline] records[0]: expected integers"},
      {"records", changed(record, 3, -2), "[timeline] records[0]: expected integers"},
      {"records", changed(record, 3, ~uint64_t{0}), "[timeline] records[0]: expected integers"},
      {"records", changed(record, 6, 11), "[timeline] records[0]: expected integers"},
      {"records", changed(record, 7, int64_t{1} << 47), "[timeline] records[0]: expected integers"},
  };
  for (const Case& each : cases) {
    Json document = *parse_json(format_timeline(a_timeline()));
    document[each.member] = each.value;
    const Result<RankTimeline> read = parse_timeline(dump_json(document));
    ASSERT_FALSE(read.ok()) << each.member << ": " << each.value;
    EXPECT_NE(read.error().message.find(each.message), std::string::npos) << read.error().message;
    document.erase(each.member);
    EXPECT_FALSE(parse_timeline(dump_json(document)).ok()) << each.member;
  }
}

TEST(Timeline, NoCutFileIsRead) {
  const std::string text = format_timeline(a_timeline());
  for (size_t bytes = 0; bytes + 1 < text.size(); ++bytes) {
    EXPECT_FALSE(parse_timeline(text.substr(0, bytes)).ok()) << bytes;
  }
}

TEST(TimelineFileName, OnlyOurOwnNamesAreRead) {
  EXPECT_EQ(timeline_file_name(1000, 3), "step-00001000-rank-00003.json");
  const auto name = parse_timeline_file_name(timeline_file_name(123456789012, 123456));
  ASSERT_TRUE(name);
  EXPECT_EQ(name->step, 123456789012);
  EXPECT_EQ(name->rank, 123456);
  for (const char* other :
       {"", "step-00001000", "step-1000-rank-3.json", "step-00001000-rank-00003.json.tmp",
        "step-00001000-rank-00003", "step--0000100-rank-00003.json",
        "step-00001000-rank--0003.json", "step-99999999999999999999-rank-00003.json",
        "step-0000100x-rank-00003.json"}) {
    EXPECT_FALSE(parse_timeline_file_name(other)) << other;
  }
}

}  // namespace
}  // namespace lockstep
