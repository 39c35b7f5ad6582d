#include "controller/kube/rate_limiter.h"

#include <algorithm>

namespace lockstep {

RateLimiter::RateLimiter(Timers& timers, Options options)
    : timers_(timers), options_(options), tokens_(options.burst), filled_at_(timers.now()) {}

RateLimiter::~RateLimiter() {
  if (timer_) timers_.cancel(*timer_);
}

void RateLimiter::submit(std::function<void()> call, bool can_wait) {
  (can_wait ? patient_ : calls_).push_back(std::move(call));
  if (!timer_) drain();
}

void RateLimiter::refill() {
  const TimePoint now = timers_.now();
  tokens_ = std::min(options_.burst, tokens_ + to_seconds(now - filled_at_) * options_.per_second);
  filled_at_ = now;
}

std::function<void()> RateLimiter::take() {
  constexpr int kPassedMax = 9;
  const bool is_their_turn = !patient_.empty() && (calls_.empty() || passed_ >= kPassedMax);
  passed_ = is_their_turn ? 0 : passed_ + 1;
  std::deque<std::function<void()>>& from = is_their_turn ? patient_ : calls_;
  std::function<void()> call = std::move(from.front());
  from.pop_front();
  return call;
}

void RateLimiter::drain() {
  refill();
  while (waiting() > 0 && tokens_ >= 1) {
    tokens_ -= 1;
    take()();
  }
  if (waiting() == 0) return;
  timer_ = timers_.after(from_seconds((1 - tokens_) / options_.per_second) + Duration{1}, [this] {
    timer_.reset();
    drain();
  });
}

}  // namespace lockstep
