#include "controller/plan/members.h"

#include <charconv>

namespace lockstep::plan {

std::vector<int64_t> members_from_text(std::string_view text) {
  std::vector<int64_t> members;
  while (!text.empty()) {
    int64_t incarnation = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), incarnation);
    if (error != std::errc() || incarnation < 1) return {};
    members.push_back(incarnation);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) break;
    if (text.front() != ',' || text.size() == 1) return {};
    text.remove_prefix(1);
  }
  return members;
}

std::string members_to_text(const std::vector<int64_t>& members) {
  std::string text;
  for (const int64_t incarnation : members) {
    if (!text.empty()) text += ',';
    text += std::to_string(incarnation);
  }
  return text;
}

}  // namespace lockstep::plan
