#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "controller/loop/timers.h"

namespace lockstep {

// A token bucket: at most `burst` calls at once and `per_second` in the long run. Calls in their
// order, but those that can wait let the others pass; one in ten is one of theirs even so.
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
  void submit(std::function<void()> call, bool can_wait = false);
  size_t waiting() const { return calls_.size() + patient_.size(); }

 private:
  void refill();
  void drain();
  std::function<void()> take();

  Timers& timers_;
  Options options_;
  double tokens_;
  TimePoint filled_at_;
  std::deque<std::function<void()>> calls_;
  std::deque<std::function<void()>> patient_;  // those that can wait
  int passed_ = 0;                             // calls since one of them had its turn
  std::optional<Timers::Id> timer_;
};

}  // namespace lockstep
