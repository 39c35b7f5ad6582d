#include "agent/train/checkpoint/numbered_name.h"

#include <charconv>
#include <cstdio>

namespace lockstep::train {

std::string NumberedName::of(int64_t number) const {
  char digits[24];
  std::snprintf(digits, sizeof(digits), "%08lld", static_cast<long long>(number));
  return std::string(before) + digits + std::string(after);
}

int64_t NumberedName::number_of(std::string_view name) const {
  if (!name.starts_with(before) || !name.ends_with(after)) return -1;
  if (name.size() < before.size() + after.size()) return -1;
  const std::string_view digits =
      name.substr(before.size(), name.size() - before.size() - after.size());
  int64_t number = -1;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  return error == std::errc() && stop == end && number >= 0 && of(number) == name ? number : -1;
}

}  // namespace lockstep::train
