#include "controller/kube/retry_after.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <iomanip>
#include <sstream>
#include <system_error>

namespace lockstep::kube {

Duration retry_after(const std::string& header, WallTime now) {
  constexpr int64_t kSecondsMax = 300;
  if (header.empty()) return Duration{0};
  uint64_t seconds = 0;
  const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), seconds);
  if (end == header.data() + header.size()) {
    if (error == std::errc::result_out_of_range || seconds > kSecondsMax) seconds = kSecondsMax;
    return std::chrono::seconds(seconds);
  }
  std::tm date{};
  std::istringstream text(header);
  text >> std::get_time(&date, "%a, %d %b %Y %H:%M:%S GMT");
  if (text.fail()) return Duration{0};
  // A date has four digits for its year; nanoseconds reach from 1677 to 2262 only.
  const int64_t now_seconds =
      std::chrono::floor<std::chrono::seconds>(now).time_since_epoch().count();
  const int64_t wait_seconds = ::timegm(&date) - now_seconds;
  return std::chrono::seconds(std::clamp<int64_t>(wait_seconds, 0, kSecondsMax));
}

}  // namespace lockstep::kube
