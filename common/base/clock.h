#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

using Duration = std::chrono::nanoseconds;
// Monotonic: the only time that logic reads.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;
// Wall clock: only for people and for what is stored.
using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;

// Time is an argument. Implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  virtual WallTime wall_now() const = 0;
};

// The machine's clocks. Named by main and adapters alone.
class SystemClock final : public Clock {
 public:
  TimePoint now() const override;
  WallTime wall_now() const override;
};

// Stands still until it is advanced; for tests and the simulator. Not thread-safe.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  WallTime wall_now() const override { return wall_; }
  void advance(Duration by) {
    now_ += by;
    wall_ += by;
  }
  // Somebody set the wall clock.
  void jump(Duration by) { wall_ += by; }

 private:
  TimePoint now_{std::chrono::hours(1)};
  WallTime wall_{std::chrono::hours(24 * 365 * 50)};
};

double to_seconds(Duration duration);
Duration from_seconds(double seconds);

// RFC 3339 in UTC, as metav1.Time (`2026-01-02T03:04:05Z`) and metav1.MicroTime
// (`2026-01-02T03:04:05.000006Z`) are written.
std::string rfc3339(WallTime time);
std::string rfc3339_micro(WallTime time);

// Reads both, with `Z` or an offset and any number of digits after the point (those beyond
// nanoseconds are dropped). kInvalid for anything else, and outside the years 1970 to 2200.
Result<WallTime> wall_time_from_rfc3339(std::string_view text);

}  // namespace lockstep
