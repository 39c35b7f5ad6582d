#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/layout/pipeline_schedule.h"

namespace lockstep {

// Uses of an optimizer step's time.
enum class StepPart : uint8_t { kData, kForward, kBackward, kCommunication, kUpdate };
inline constexpr int kStepParts = 5;
// "data", "forward", "backward", "communication", "update".
std::string_view step_part_name(StepPart part);

// A stretch of time in which a rank did one thing. Times are nanoseconds since
// RankTimeline::begin_ns.
struct TimelineRecord {
  int64_t step = 0;
  // The schedule's action under way. None: what a step does before the first action and after the
  // last one, such as to add up the loss over all ranks.
  std::optional<ActionKind> action = {};
  // The use of this part of the action's time. Communication within a forward or a backward is a
  // wait for other ranks. The part of a backward that computes the loss is forward.
  StepPart part = StepPart::kData;
  int64_t micro_batch = -1;  // -1: the action concerns none
  int64_t chunk = 0;
  int64_t version = 0;  // updates behind the parameters that the action reads or writes
  int64_t begin_ns = 0;
  int64_t end_ns = 0;

  bool operator==(const TimelineRecord&) const = default;
};

// One recorded step of a rank, from its begin to its end on the host.
struct TimelineStep {
  int64_t step = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;

  bool operator==(const TimelineStep&) const = default;
};

// How a rank's monotonic clock relates to rank 0's: rank 0's time is the own time plus the offset.
struct ClockOffset {
  int64_t offset_ns = 0;
  int64_t error_ns = 0;  // at most so wrong when it was measured

  bool operator==(const ClockOffset&) const = default;
};

// The content of a timeline file (docs/formats.md): some steps of one rank. Records are in the
// order in which they ended.
struct RankTimeline {
  int64_t round = 0;
  int64_t rank = 0;
  int64_t ranks = 1;
  int64_t stage = 0;
  int64_t stages = 1;
  ClockOffset clock = {};
  int64_t begin_ns = 0;  // on the rank's own monotonic clock
  int64_t dropped = 0;   // the oldest records, for which there was no room
  std::vector<TimelineStep> steps = {};
  std::vector<TimelineRecord> records = {};

  bool operator==(const RankTimeline&) const = default;
};

inline constexpr size_t kTimelineStepsMax = 1000;
inline constexpr size_t kTimelineRecordsMax = size_t{1} << 16;
inline constexpr size_t kTimelineBytesMax = size_t{16} << 20;

// The name of a file in the folder `timeline`: `step-00001000-rank-00003.json`, by the recording's
// last step.
std::string timeline_file_name(int64_t step, int64_t rank);
struct TimelineFileName {
  int64_t step = 0;
  int64_t rank = 0;
};
// Nothing for any name that timeline_file_name() does not give.
std::optional<TimelineFileName> parse_timeline_file_name(std::string_view name);

std::string format_timeline(const RankTimeline& timeline);
// Parses text from outside; kInvalid says what is wrong where. Checks everything that the members'
// comments say, and bounds all times, so that no sum of a result's times and clocks overflows.
Result<RankTimeline> parse_timeline(std::string_view text);

}  // namespace lockstep
