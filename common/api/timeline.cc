#include "common/api/timeline.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "common/api/codec.h"

namespace lockstep {
namespace {

constexpr std::string_view kFormat = "lockstep-timeline/1";
constexpr std::string_view kNoAction = "step";  // of records outside the schedule
constexpr std::string_view kParts[kStepParts] = {"data", "forward", "backward", "communication",
                                                 "update"};
constexpr ActionKind kActions[] = {
    ActionKind::kTake,           ActionKind::kReceiveActivation, ActionKind::kForward,
    ActionKind::kSendActivation, ActionKind::kReceiveGradient,   ActionKind::kBackward,
    ActionKind::kSendGradient,   ActionKind::kBackwardWeights,   ActionKind::kFinishReductions,
    ActionKind::kUpdate};
constexpr int64_t kNumberMax = int64_t{1} << 40;  // of steps, ranks, micro-batches
constexpr int64_t kTimeMax = int64_t{1} << 60;    // of a clock, in nanoseconds: 36 years
// Since the recording's begin: 19 hours. The sum over all records is within an integer.
constexpr int64_t kSpanMax = int64_t{1} << 46;

// Reads integers of a list in turn and remembers the first that is out of range.
class Numbers {
 public:
  Numbers(const Json& list, size_t first) : list_(list), next_(first) {}

  int64_t next(int64_t minimum, int64_t maximum) {
    int64_t value = 0;
    const bool is_fine =
        codec::read_integer(list_[next_++], value) && value >= minimum && value <= maximum;
    if (!is_fine) ok_ = false;
    return is_fine ? value : 0;
  }
  bool ok() const { return ok_; }

 private:
  const Json& list_;
  size_t next_;
  bool ok_ = true;
};

Error bad(const std::string& where, const std::string& expected) {
  return invalid("[timeline] " + where + ": expected " + expected);
}

std::string item(const char* list, size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

Result<int64_t> ranged(const Json& document, const char* key, int64_t minimum, int64_t maximum) {
  TRY_ASSIGN(const int64_t value, int_member(document, key));
  if (value >= minimum && value <= maximum) return value;
  return bad(key, std::to_string(minimum) + " to " + std::to_string(maximum) + ", found " +
                      std::to_string(value));
}

Result<const Json*> list_of(const Json& document, const char* key, size_t count_max) {
  const Json* list = find_member(document, key);
  if (list == nullptr || !list->is_array()) return bad(key, "a list");
  if (list->size() <= count_max) return list;
  return bad(key, "at most " + std::to_string(count_max) + " items, found " +
                      std::to_string(list->size()));
}

Result<TimelineStep> read_step(const Json& row, size_t index) {
  if (!row.is_array() || row.size() != 3) return bad(item("steps", index), "3 integers");
  Numbers numbers(row, 0);
  TimelineStep step;
  step.step = numbers.next(1, kNumberMax);
  step.begin_ns = numbers.next(0, kSpanMax);
  step.end_ns = numbers.next(step.begin_ns, kSpanMax);
  if (!numbers.ok()) return bad(item("steps", index), "a step and its ascending times");
  return step;
}

// Whether the texts name a part, and an action or none.
bool read_names(const Json& action, const Json& part, TimelineRecord& record) {
  if (!action.is_string() || !part.is_string()) return false;
  const std::string& name = action.get_ref<const std::string&>();
  const auto* kind = std::ranges::find(kActions, name, action_name);
  if (kind != std::end(kActions)) record.action = *kind;
  const auto* found = std::ranges::find(kParts, part.get_ref<const std::string&>());
  record.part = static_cast<StepPart>(found - kParts);
  return (record.action || name == kNoAction) && found != std::end(kParts);
}

Result<TimelineRecord> read_record(const Json& row, size_t index) {
  if (!row.is_array() || row.size() != 8) return bad(item("records", index), "8 values");
  TimelineRecord record;
  if (!read_names(row[1], row[2], record)) {
    return bad(item("records", index), "the name of an action and of a part of the step");
  }
  Numbers numbers(row, 3);
  record.micro_batch = numbers.next(-1, kNumberMax);
  record.chunk = numbers.next(0, kNumberMax);
  record.version = numbers.next(0, kNumberMax);
  record.begin_ns = numbers.next(0, kSpanMax);
  record.end_ns = numbers.next(record.begin_ns, kSpanMax);
  Numbers first(row, 0);
  record.step = first.next(1, kNumberMax);
  if (!numbers.ok() || !first.ok()) {
    return bad(item("records", index), "integers in their ranges and ascending times");
  }
  return record;
}

Status read_head(const Json& document, RankTimeline& timeline) {
  TRY_ASSIGN(timeline.round, ranged(document, "round", 0, kNumberMax));
  TRY_ASSIGN(timeline.ranks, ranged(document, "ranks", 1, kNumberMax));
  TRY_ASSIGN(timeline.rank, ranged(document, "rank", 0, timeline.ranks - 1));
  TRY_ASSIGN(timeline.stages, ranged(document, "stages", 1, timeline.ranks));
  TRY_ASSIGN(timeline.stage, ranged(document, "stage", 0, timeline.stages - 1));
  TRY_ASSIGN(timeline.clock.offset_ns,
             ranged(document, "clockOffsetNanoseconds", -kTimeMax, kTimeMax));
  TRY_ASSIGN(timeline.clock.error_ns, ranged(document, "clockErrorNanoseconds", 0, kTimeMax));
  TRY_ASSIGN(timeline.begin_ns, ranged(document, "beginNanoseconds", -kTimeMax, kTimeMax));
  TRY_ASSIGN(timeline.dropped, ranged(document, "dropped", 0, kNumberMax));
  return {};
}

}  // namespace

std::string_view step_part_name(StepPart part) {
  return kParts[static_cast<size_t>(part)];
}

std::string timeline_file_name(int64_t step, int64_t rank) {
  std::array<char, 72> text{};
  std::snprintf(text.data(), text.size(), "step-%08lld-rank-%05lld.json",
                static_cast<long long>(step), static_cast<long long>(rank));
  return text.data();
}

std::optional<TimelineFileName> parse_timeline_file_name(std::string_view name) {
  constexpr std::string_view kStep = "step-";
  constexpr std::string_view kRank = "-rank-";
  const size_t middle = name.find(kRank);
  if (!name.starts_with(kStep) || middle == std::string_view::npos) return {};
  TimelineFileName found;
  const std::string_view step = name.substr(kStep.size(), middle - kStep.size());
  const std::string_view rank = name.substr(middle + kRank.size());
  std::from_chars(step.data(), step.data() + step.size(), found.step);
  std::from_chars(rank.data(), rank.data() + rank.size(), found.rank);
  if (found.step < 0 || found.rank < 0) return {};
  if (timeline_file_name(found.step, found.rank) != name) return {};
  return found;
}

std::string format_timeline(const RankTimeline& timeline) {
  Json steps = Json::array();
  for (const TimelineStep& step : timeline.steps) {
    steps.push_back({step.step, step.begin_ns, step.end_ns});
  }
  Json records = Json::array();
  for (const TimelineRecord& record : timeline.records) {
    records.push_back({record.step, record.action ? action_name(*record.action) : kNoAction,
                       step_part_name(record.part), record.micro_batch, record.chunk,
                       record.version, record.begin_ns, record.end_ns});
  }
  return dump_json({{"format", kFormat},
                    {"round", timeline.round},
                    {"rank", timeline.rank},
                    {"ranks", timeline.ranks},
                    {"stage", timeline.stage},
                    {"stages", timeline.stages},
                    {"clockOffsetNanoseconds", timeline.clock.offset_ns},
                    {"clockErrorNanoseconds", timeline.clock.error_ns},
                    {"beginNanoseconds", timeline.begin_ns},
                    {"dropped", timeline.dropped},
                    {"steps", std::move(steps)},
                    {"records", std::move(records)}}) +
         "\n";
}

Result<RankTimeline> parse_timeline(std::string_view text) {
  TRY_ASSIGN(const Json document, parse_json(text, {.bytes_max = kTimelineBytesMax,
                                                    .depth_max = 4,
                                                    .values_max = 10 * kTimelineRecordsMax}));
  if (!document.is_object()) return bad("the file", "an object");
  TRY_ASSIGN(const std::string format, string_member(document, "format"));
  if (format != kFormat) return bad("format", std::string(kFormat) + ", found another one");
  RankTimeline timeline;
  TRY(read_head(document, timeline));
  TRY_ASSIGN(const Json* steps, list_of(document, "steps", kTimelineStepsMax));
  for (size_t i = 0; i < steps->size(); ++i) {
    TRY_ASSIGN(const TimelineStep step, read_step((*steps)[i], i));
    timeline.steps.push_back(step);
  }
  if (timeline.steps.empty()) return bad("steps", "at least one");
  TRY_ASSIGN(const Json* records, list_of(document, "records", kTimelineRecordsMax));
  timeline.records.reserve(records->size());
  for (size_t i = 0; i < records->size(); ++i) {
    TRY_ASSIGN(const TimelineRecord record, read_record((*records)[i], i));
    timeline.records.push_back(record);
  }
  return timeline;
}

}  // namespace lockstep
