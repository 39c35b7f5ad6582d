#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "controller/loop/timers.h"

namespace lockstep {

// A token bucket: at most `burst` calls at once and `per_second` in the long run, in their order.
// Single-threaded.
class RateLimiter {
 public:
  struct Options {
    double per_second = 50;
    double burst = 100;
  };

  RateLimiter(Timers& timers, Options options);
  ~RateLimiter();

  // Makes the call now, or from a timer when its turn has come.
  void submit(std::function<void()> call);
  size_t waiting() const { return calls_.size(); }

 private:
  void refill();
  void drain();

  Timers& timers_;
  Options options_;
  double tokens_;
  TimePoint filled_at_;
  std::deque<std::function<void()>> calls_;
  std::optional<Timers::Id> timer_;
};

}  // namespace lockstep
