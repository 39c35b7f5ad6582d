#include "local/table/human_duration.h"

namespace lockstep::local {
namespace {

constexpr int64_t kMinute = 60;
constexpr int64_t kHour = 60 * kMinute;
constexpr int64_t kDay = 24 * kHour;
constexpr int64_t kYear = 365 * kDay;

std::string whole(int64_t seconds, int64_t unit, char name) {
  return std::to_string(seconds / unit) + name;
}

struct Unit {
  int64_t seconds;
  char name;
};

// Formats "3h20m"; leaves out the smaller unit if it is 0.
std::string in_two_units(int64_t seconds, Unit large, Unit small) {
  std::string text = whole(seconds, large.seconds, large.name);
  int64_t rest = seconds % large.seconds / small.seconds;
  return rest == 0 ? text : text + std::to_string(rest) + small.name;
}

}  // namespace

std::string human_duration(Duration duration) {
  int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  if (seconds < -1) return "<invalid>";
  if (seconds < 0) return "0s";
  constexpr Unit kSeconds{1, 's'}, kMinutes{kMinute, 'm'}, kHours{kHour, 'h'}, kDays{kDay, 'd'},
      kYears{kYear, 'y'};
  if (seconds < 2 * kMinute) return whole(seconds, 1, 's');
  if (seconds < 10 * kMinute) return in_two_units(seconds, kMinutes, kSeconds);
  if (seconds < 3 * kHour) return whole(seconds, kMinute, 'm');
  if (seconds < 8 * kHour) return in_two_units(seconds, kHours, kMinutes);
  if (seconds < 2 * kDay) return whole(seconds, kHour, 'h');
  if (seconds < 8 * kDay) return in_two_units(seconds, kDays, kHours);
  if (seconds < 2 * kYear) return whole(seconds, kDay, 'd');
  if (seconds < 8 * kYear) return in_two_units(seconds, kYears, kDays);
  return whole(seconds, kYear, 'y');
}

std::string age(const Json& timestamp, WallTime now) {
  if (!timestamp.is_string()) return "<unknown>";
  Result<WallTime> time = wall_time_from_rfc3339(timestamp.get_ref<const std::string&>());
  return time.ok() ? human_duration(now - *time) : "<unknown>";
}

}  // namespace lockstep::local
