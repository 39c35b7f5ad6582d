#include "common/base/clock.h"

#include <cstdio>
#include <ctime>

namespace lockstep {
namespace {

std::tm utc(WallTime time) {
  const std::time_t seconds = static_cast<std::time_t>(
      std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count());
  std::tm fields{};
  gmtime_r(&seconds, &fields);
  return fields;
}

}  // namespace

TimePoint SystemClock::now() const {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
}

WallTime SystemClock::wall_now() const {
  return std::chrono::time_point_cast<Duration>(std::chrono::system_clock::now());
}

double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::string rfc3339(WallTime time) {
  const std::tm fields = utc(time);
  char text[32];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields);
  return {text, size};
}

std::string rfc3339_micro(WallTime time) {
  const std::tm fields = utc(time);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(
      time - std::chrono::floor<std::chrono::seconds>(time));
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &fields);
  char text[64];
  const int size =
      std::snprintf(text, sizeof text, "%s.%06dZ", date, static_cast<int>(micros.count()));
  return {text, static_cast<size_t>(size)};
}

}  // namespace lockstep
