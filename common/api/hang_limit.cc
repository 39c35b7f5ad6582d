#include "common/api/hang_limit.h"

#include <algorithm>

namespace lockstep {

void HangLimit::add_step(Duration took) {
  is_after_pause_ = false;
  if (steps_.size() < kStepsKept) {
    steps_.push_back(took);
    return;
  }
  steps_[next_] = took;
  next_ = (next_ + 1) % kStepsKept;
}

Duration HangLimit::of_next_step() const {
  if (is_after_pause_ || steps_.size() < kStepsNeeded) return pause_;
  std::vector<Duration> sorted = steps_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return std::clamp<Duration>(5 * *middle, floor_, std::max(floor_, pause_));
}

}  // namespace lockstep
