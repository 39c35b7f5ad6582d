#include "common/base/clock.h"

#include <cstdio>
#include <ctime>

namespace lockstep {
namespace {

// Eats a time from the left; once something is wrong `good` is false and stays so.
struct Digits {
  std::string_view rest;
  bool good = true;

  bool skip(char expected) {
    if (rest.empty() || rest.front() != expected) return false;
    rest.remove_prefix(1);
    return true;
  }

  // `count` digits and the separator after them ('\0': none).
  int take(size_t count, char separator) {
    int value = 0;
    for (size_t i = 0; i < count; ++i) {
      if (rest.empty() || rest.front() < '0' || rest.front() > '9') {
        good = false;
        return 0;
      }
      value = value * 10 + (rest.front() - '0');
      rest.remove_prefix(1);
    }
    if (separator != '\0' && !skip(separator)) good = false;
    return value;
  }

  Duration take_fraction() {
    if (!skip('.')) return Duration{0};
    int64_t unit = 100'000'000;
    int64_t nanoseconds = 0;
    if (rest.empty() || rest.front() < '0' || rest.front() > '9') good = false;
    for (; !rest.empty() && rest.front() >= '0' && rest.front() <= '9'; unit /= 10) {
      nanoseconds += unit * (rest.front() - '0');
      rest.remove_prefix(1);
    }
    return Duration(nanoseconds);
  }

  Duration take_offset() {
    if (skip('Z')) return Duration{0};
    const bool east = skip('+');
    if (!east && !skip('-')) good = false;
    const int hours = take(2, ':');
    const int minutes = take(2, '\0');
    const Duration offset = std::chrono::hours(hours) + std::chrono::minutes(minutes);
    return east ? offset : -offset;
  }
};

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

Result<WallTime> wall_time_from_rfc3339(std::string_view text) {
  const Error error = invalid("[clock] expected a time as 2026-01-02T03:04:05Z, found \"" +
                              std::string(text.substr(0, 40)) + "\"");
  Digits digits{text};
  const int year = digits.take(4, '-');
  const int month = digits.take(2, '-');
  const int day = digits.take(2, 'T');
  const int hour = digits.take(2, ':');
  const int minute = digits.take(2, ':');
  const int second = digits.take(2, '\0');
  const Duration fraction = digits.take_fraction();
  const Duration offset = digits.take_offset();
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(unsigned(month)),
                                         std::chrono::day(unsigned(day))};
  if (!digits.good || !digits.rest.empty() || !date.ok() || year < 1970 || year > 2200 ||
      hour > 23 || minute > 59 || second > 60) {
    return error;
  }
  return WallTime(std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(hour) +
                  std::chrono::minutes(minute) + std::chrono::seconds(second) + fraction - offset);
}

}  // namespace lockstep
