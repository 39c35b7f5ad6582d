#include "common/base/clock.h"

#include <algorithm>

namespace lockstep {
namespace {

// Consumes a time from the left. After the first mistake, `good` stays false.
struct Digits {
  std::string_view rest;
  bool good = true;

  bool skip(char expected) {
    if (rest.empty() || rest.front() != expected) return false;
    rest.remove_prefix(1);
    return true;
  }

  // Reads `count` digits and the separator after them ('\0': none).
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

// Writes the decimal digits with leading zeros.
void put(uint64_t value, size_t digits, char* to) {
  for (; digits > 0; value /= 10) to[--digits] = static_cast<char>('0' + value % 10);
}

// Formats "2026-01-02T03:04:05", without leap seconds. Written by hand for speed: every status and
// log line contains such times.
std::string date_and_time(WallTime time) {
  const auto second = std::chrono::floor<std::chrono::seconds>(time);
  const auto day = std::chrono::floor<std::chrono::days>(second);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss<std::chrono::seconds> clock(second - day);
  std::string text = "0000-00-00T00:00:00";
  put(static_cast<uint64_t>(std::max(0, int(date.year()))), 4, &text[0]);
  put(unsigned(date.month()), 2, &text[5]);
  put(unsigned(date.day()), 2, &text[8]);
  put(static_cast<uint64_t>(clock.hours().count()), 2, &text[11]);
  put(static_cast<uint64_t>(clock.minutes().count()), 2, &text[14]);
  put(static_cast<uint64_t>(clock.seconds().count()), 2, &text[17]);
  return text;
}

Error unreadable(std::string_view text) {
  return invalid("[clock] expected a time as 2026-01-02T03:04:05Z, found \"" +
                 std::string(text.substr(0, 40)) + "\"");
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
  return date_and_time(time) + "Z";
}

std::string rfc3339_micro(WallTime time) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(
      time - std::chrono::floor<std::chrono::seconds>(time));
  std::string text = date_and_time(time) + ".000000Z";
  put(static_cast<uint64_t>(micros.count()), 6, &text[20]);
  return text;
}

Result<WallTime> wall_time_from_rfc3339(std::string_view text) {
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
    return unreadable(text);
  }
  return WallTime(std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(hour) +
                  std::chrono::minutes(minute) + std::chrono::seconds(second) + fraction - offset);
}

}  // namespace lockstep
