#pragma once

#include <cstdint>
#include <optional>

#include "common/api/hang_limit.h"
#include "common/api/progress_page.h"
#include "common/base/clock.h"

namespace lockstep::node {

// Detects from a rank's progress page that it makes no progress in a step, for max(floor, 5 x
// longest x the median of the last steps). Ranks that wait for each other detect this earlier; the
// watch is for a rank that is alone, and for all ranks stopping at the same time. There is no limit
// for the first steps of a round, whose duration is unknown, or for other work (loading, saving,
// validating).
class HangWatch {
 public:
  // `longest`: as longest_step().
  explicit HangWatch(Duration floor, double longest = 1)
      : limit_(floor, Duration::max(), longest) {}

  // Call periodically with the page's numbers. Time between calls in which nobody looked does not
  // count: the whole pod may have been paused.
  bool is_hung(const ProgressNumbers& numbers, TimePoint now);

 private:
  HangLimit limit_;
  int64_t step_ = -1;
  std::optional<TimePoint> since_;  // when the step was first seen; none: not in a step
  TimePoint polled_at_{};
};

// Detects that a program which has given signs of life gives none for longer than the limit.
class SilenceWatch {
 public:
  explicit SilenceWatch(Duration limit) : limit_(limit) {}

  // Call periodically with the number of signs so far. Time between calls in which nobody looked
  // does not count.
  bool is_silent(uint64_t signs, TimePoint now);

 private:
  Duration limit_;
  uint64_t signs_ = 0;
  TimePoint heard_at_{};
  TimePoint polled_at_{};
};

}  // namespace lockstep::node
