#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

using Duration = std::chrono::nanoseconds;
// Monotonic time: the only time that program logic reads.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;
// Wall clock: only for display and for stored values.
using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;

// Source of time, injected so that tests can control it. Implementations are thread-safe unless
// they say otherwise.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  virtual WallTime wall_now() const = 0;
};

// The machine's clocks. Only main functions and adapters name this class.
class SystemClock final : public Clock {
 public:
  TimePoint now() const override;
  WallTime wall_now() const override;
};

// A clock that only moves when advanced; for tests and the simulator. Not thread-safe.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  WallTime wall_now() const override { return wall_; }
  void advance(Duration by) {
    now_ += by;
    wall_ += by;
  }
  // Simulates a change of the wall clock.
  void jump(Duration by) { wall_ += by; }

 private:
  TimePoint now_{std::chrono::hours(1)};
  WallTime wall_{std::chrono::hours(24 * 365 * 50)};
};

double to_seconds(Duration duration);
Duration from_seconds(double seconds);

// Formats in RFC 3339, UTC, as metav1.Time (`2026-01-02T03:04:05Z`) and metav1.MicroTime
// (`2026-01-02T03:04:05.000006Z`) do.
std::string rfc3339(WallTime time);
std::string rfc3339_micro(WallTime time);

// Parses both formats, with `Z` or an offset and any number of fractional digits; digits beyond
// nanoseconds are dropped. kInvalid for any other text and for years outside 1970 to 2200.
Result<WallTime> wall_time_from_rfc3339(std::string_view text);

}  // namespace lockstep
