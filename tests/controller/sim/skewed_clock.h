#pragma once

#include <algorithm>

#include "common/base/clock.h"

namespace lockstep::sim {

// The clocks of one machine: its wall clock is off by some minutes, and drifts.
class SkewedClock final : public Clock {
 public:
  static constexpr Duration kAheadMax = std::chrono::minutes(10);  // or as much behind
  static constexpr int64_t kDriftMax = 20;                         // in thousandths, either way
  static constexpr Duration kDriftedMax = std::chrono::minutes(5);

  explicit SkewedClock(const Clock& right) : right_(right) {}

  void skew(Duration ahead, int64_t drift) {
    ahead_ = ahead;
    drift_ = drift;
    since_ = right_.now();
  }

  TimePoint now() const override { return right_.now(); }
  WallTime wall_now() const override {
    const Duration drifted = (right_.now() - since_) / 1000 * drift_;
    return right_.wall_now() + ahead_ + std::clamp(drifted, -kDriftedMax, kDriftedMax);
  }

 private:
  const Clock& right_;
  Duration ahead_{0};
  int64_t drift_ = 0;
  TimePoint since_{};
};

}  // namespace lockstep::sim
