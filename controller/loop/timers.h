#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "common/base/clock.h"

namespace lockstep::loop {

// Calls scheduled for a time. Single-threaded; the owner of the thread calls run_due() when next()
// has come.
class Timers {
 public:
  using Id = std::pair<TimePoint, uint64_t>;

  explicit Timers(const Clock& clock) : clock_(clock) {}

  TimePoint now() const { return clock_.now(); }
  WallTime wall_now() const { return clock_.wall_now(); }
  Id at(TimePoint when, std::function<void()> call);
  Id after(Duration delay, std::function<void()> call) {
    return at(now() + delay, std::move(call));
  }
  void cancel(const Id& id) { calls_.erase(id); }
  std::optional<TimePoint> next() const;
  // Runs the calls that are due when it is called, in order, but none that they add.
  void run_due();

 private:
  const Clock& clock_;
  uint64_t last_ = 0;
  std::map<Id, std::function<void()>> calls_;
};

}  // namespace lockstep::loop
