#include "controller/loop/retry.h"

#include <algorithm>

namespace lockstep::loop {

Duration Retry::next(TimePoint now) {
  if (now - last_ > delay_ + options_.reset_after) delay_ = Duration{0};
  last_ = now;
  delay_ = delay_ <= Duration{0} ? options_.first : std::min(delay_ * 2, options_.max);
  const double stretch = options_.jitter * static_cast<double>(random_.uniform());
  return delay_ + std::chrono::duration_cast<Duration>(delay_ * stretch);
}

}  // namespace lockstep::loop
