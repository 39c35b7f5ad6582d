#include "controller/loop/resource_version.h"

#include <algorithm>

namespace lockstep::loop {
namespace {

bool is_version(std::string_view text) {
  if (text.empty() || text.front() == '0') return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::optional<std::strong_ordering> compare_versions(std::string_view a, std::string_view b) {
  if (!is_version(a) || !is_version(b)) return std::nullopt;
  if (a.size() != b.size()) return a.size() <=> b.size();
  return a.compare(b) <=> 0;
}

}  // namespace lockstep::loop
