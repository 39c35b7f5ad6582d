#include "controller/loop/timers.h"

namespace lockstep::loop {

Timers::Id Timers::at(TimePoint when, std::function<void()> call) {
  const Id id{when, ++last_};
  calls_.emplace(id, std::move(call));
  return id;
}

std::optional<TimePoint> Timers::next() const {
  if (calls_.empty()) return std::nullopt;
  return calls_.begin()->first.first;
}

void Timers::run_due() {
  const TimePoint until = now();
  const uint64_t newest = last_;
  auto it = calls_.begin();
  while (it != calls_.end() && it->first.first <= until) {
    if (it->first.second > newest) {
      ++it;
      continue;
    }
    const std::function<void()> call = std::move(it->second);
    calls_.erase(it);
    call();
    it = calls_.begin();  // the call may have added and cancelled others
  }
}

}  // namespace lockstep::loop
