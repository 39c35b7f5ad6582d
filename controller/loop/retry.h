#pragma once

#include "common/base/clock.h"
#include "common/base/random.h"

namespace lockstep::loop {

// Errors in a row that may pass, before users are told.
inline constexpr int kTroublesBorne = 2;

struct RetryOptions {
  Duration first = std::chrono::milliseconds(800);
  Duration max = std::chrono::seconds(30);
  double jitter = 1.0;  // a delay d becomes a random one in [d, (1 + jitter) d)
  Duration reset_after = std::chrono::minutes(2);  // without a failure
};

// Delays between attempts: exponential with jitter, starting over after a time without failures.
// Source of the defaults: client-go, tools/cache/reflector.go.
class Retry {
 public:
  Retry(RetryOptions options, Random& random) : options_(options), random_(random) {}

  // Returns the delay after a failure at `now`.
  Duration next(TimePoint now);
  void reset() { delay_ = Duration{0}; }

 private:
  RetryOptions options_;
  Random& random_;
  Duration delay_{0};
  TimePoint last_{};
};

}  // namespace lockstep::loop
