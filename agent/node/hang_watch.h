#pragma once

#include <cstdint>
#include <optional>

#include "common/api/hang_limit.h"
#include "common/api/progress_page.h"
#include "common/base/clock.h"

namespace lockstep {

// Whether a rank stands still in a step, by its progress page: for max(floor, 5 x the median of the
// last steps). Of ranks that wait for each other the others know it earlier, but for one that is
// alone, and where all stand still at once. A round's first steps, of which nothing is known, and
// what is not a step (loading, saving, validating) have no limit.
class HangWatch {
 public:
  explicit HangWatch(Duration floor) : limit_(floor, Duration::max()) {}

  // To be called again and again with what the page says. Time in which nobody looked does not
  // count: the whole pod may have stood still.
  bool is_hung(const ProgressNumbers& numbers, TimePoint now);

 private:
  HangLimit limit_;
  int64_t step_ = -1;
  std::optional<TimePoint> since_;  // the step began, as far as was seen; none: it isn't in one
  TimePoint looked_at_{};
};

}  // namespace lockstep
