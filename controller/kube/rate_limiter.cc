#include "controller/kube/rate_limiter.h"

#include <algorithm>

namespace lockstep {

RateLimiter::RateLimiter(Timers& timers, Options options)
    : timers_(timers), options_(options), tokens_(options.burst), filled_at_(timers.now()) {}

RateLimiter::~RateLimiter() {
  if (timer_) timers_.cancel(*timer_);
}

void RateLimiter::submit(std::function<void()> call, ApiPriority priority) {
  lanes_[static_cast<size_t>(priority)].calls.push_back(std::move(call));
  if (!timer_) drain();
}

void RateLimiter::refill() {
  const TimePoint now = timers_.now();
  tokens_ = std::min(options_.burst, tokens_ + to_seconds(now - filled_at_) * options_.per_second);
  filled_at_ = now;
}

size_t RateLimiter::waiting() const {
  size_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.calls.size();
  return sum;
}

// Of those that were passed often enough the lowest, else the highest that has a call.
RateLimiter::Lane& RateLimiter::next_lane() {
  constexpr int kPassedMax = 9;
  for (auto lane = lanes_.rbegin(); lane != lanes_.rend(); ++lane) {
    if (!lane->calls.empty() && lane->passed >= kPassedMax) return *lane;
  }
  return *std::find_if(lanes_.begin(), lanes_.end(),
                       [](const Lane& lane) { return !lane.calls.empty(); });
}

std::function<void()> RateLimiter::take() {
  Lane& from = next_lane();
  from.passed = 0;
  for (Lane* lower = &from + 1; lower != lanes_.data() + lanes_.size(); ++lower) {
    if (!lower->calls.empty()) ++lower->passed;
  }
  std::function<void()> call = std::move(from.calls.front());
  from.calls.pop_front();
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
