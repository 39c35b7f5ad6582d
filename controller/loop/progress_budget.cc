#include "controller/loop/progress_budget.h"

#include <algorithm>
#include <functional>

namespace lockstep::loop {
namespace {

// Returns a fraction from 0 to 1 that depends on the name alone.
double place_of(const std::string& job) {
  constexpr size_t kPlaces = 4096;
  return static_cast<double>(std::hash<std::string>{}(job) % kPlaces) / kPlaces;
}

}  // namespace

TimePoint ProgressBudget::next(const std::string& job, size_t jobs, TimePoint now) {
  const Writes& last = last_.try_emplace(job, Writes{.known_since = now}).first->second;
  const double share = static_cast<double>(jobs) / options_.per_second;
  const TimePoint own = last.numbers ? *last.numbers + from_seconds(share)
                                     : last.known_since + from_seconds(share * place_of(job));
  return last.any ? std::max(own, *last.any + options_.interval_min) : own;
}

}  // namespace lockstep::loop
