#include "controller/kube/rate_limiter.h"

#include <algorithm>

namespace lockstep {

RateLimiter::RateLimiter(Timers& timers, Options options)
    : timers_(timers), options_(options), tokens_(options.burst), filled_at_(timers.now()) {}

RateLimiter::~RateLimiter() {
  if (timer_) timers_.cancel(*timer_);
}

void RateLimiter::submit(std::function<void()> call) {
  calls_.push_back(std::move(call));
  if (!timer_) drain();
}

void RateLimiter::refill() {
  const TimePoint now = timers_.now();
  tokens_ = std::min(options_.burst, tokens_ + to_seconds(now - filled_at_) * options_.per_second);
  filled_at_ = now;
}

void RateLimiter::drain() {
  refill();
  while (!calls_.empty() && tokens_ >= 1) {
    tokens_ -= 1;
    const std::function<void()> call = std::move(calls_.front());
    calls_.pop_front();
    call();
  }
  if (calls_.empty()) return;
  timer_ = timers_.after(from_seconds((1 - tokens_) / options_.per_second) + Duration{1}, [this] {
    timer_.reset();
    drain();
  });
}

}  // namespace lockstep
