#include "controller/loop/progress_budget.h"

#include <algorithm>

namespace lockstep {

TimePoint ProgressBudget::next(const std::string& job, size_t jobs) const {
  const auto last = last_.find(job);
  if (last == last_.end()) return TimePoint{};
  const auto& [numbers, any] = last->second;
  const Duration share = from_seconds(static_cast<double>(jobs) / options_.per_second);
  const TimePoint soonest = any + options_.interval_min;
  return numbers ? std::max(soonest, *numbers + share) : soonest;
}

}  // namespace lockstep
