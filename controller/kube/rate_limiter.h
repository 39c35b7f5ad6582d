#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "controller/loop/api_client.h"
#include "controller/loop/timers.h"

namespace lockstep::kube {

// A token bucket: at most `burst` calls together, `per_second` in the long run, and `open_max` that
// have not ended. Calls of one priority keep their order. Higher priorities pass lower ones, but
// after nine such passes a lane that was passed has its turn. Single-threaded.
class RateLimiter {
 public:
  struct Options {
    double per_second = 50;
    double burst = 100;
    size_t open_max = SIZE_MAX;
  };

  RateLimiter(loop::Timers& timers, Options options);
  ~RateLimiter();

  // Makes the call now, or when its turn has come: from a timer or from within end_one().
  void submit(std::function<void()> call, loop::ApiPriority priority = loop::ApiPriority::kRoutine);
  // Reports that a call has ended; needed only for `open_max`. A call may report its own end.
  void end_one();
  // Makes no call before then; the latest such time counts.
  void hold_until(TimePoint time);
  size_t waiting() const;

 private:
  struct Lane {
    std::deque<std::function<void()>> calls;
    int passed = 0;  // by calls of higher priority, while it had calls, since its last turn
  };

  void refill();
  void drain();
  Lane& next_lane();
  std::function<void()> take();

  loop::Timers& timers_;
  Options options_;
  double tokens_;
  TimePoint filled_at_;
  TimePoint held_until_;
  size_t open_ = 0;
  bool is_draining_ = false;
  std::array<Lane, 3> lanes_;  // by ApiPriority
  std::optional<loop::Timers::Id> timer_;
};

}  // namespace lockstep::kube
