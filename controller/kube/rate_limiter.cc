#include "controller/kube/rate_limiter.h"

#include <algorithm>

namespace lockstep::kube {

RateLimiter::RateLimiter(loop::Timers& timers, Options options)
    : timers_(timers),
      options_(options),
      tokens_(options.burst),
      filled_at_(timers.now()),
      held_until_(timers.now()) {}

RateLimiter::~RateLimiter() {
  if (timer_) timers_.cancel(*timer_);
}

void RateLimiter::submit(std::function<void()> call, loop::ApiPriority priority) {
  lanes_[static_cast<size_t>(priority)].calls.push_back(std::move(call));
  if (!timer_) drain();
}

void RateLimiter::end_one() {
  --open_;
  if (!timer_) drain();
}

void RateLimiter::hold_until(TimePoint time) {
  if (time <= held_until_) return;
  held_until_ = time;
  if (timer_) timers_.cancel(*timer_);
  timer_.reset();
  drain();
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

// Returns the lowest lane that was passed often enough, else the highest that has a call.
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

// A call that ends immediately, or submits another, re-enters here; the outer loop goes on with the
// next ones, so the depth does not grow.
void RateLimiter::drain() {
  if (is_draining_) return;
  is_draining_ = true;
  refill();
  while (waiting() > 0 && filled_at_ >= held_until_ && tokens_ >= 1 && open_ < options_.open_max) {
    tokens_ -= 1;
    ++open_;
    take()();
  }
  is_draining_ = false;
  if (waiting() == 0 || open_ >= options_.open_max) return;
  const Duration for_token =
      from_seconds(std::max(0.0, 1 - tokens_) / options_.per_second) + Duration{1};
  timer_ = timers_.after(std::max(for_token, held_until_ - filled_at_), [this] {
    timer_.reset();
    drain();
  });
}

}  // namespace lockstep::kube
