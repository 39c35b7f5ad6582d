#include "controller/plan/failure_rules.h"

#include <algorithm>

namespace lockstep::plan {
namespace {

bool matches(const FailureRule& rule, const FailureStatus& failure) {
  if (is_about_loss(rule.action)) return false;
  const auto& codes = rule.exitCodes;
  const bool has_code =
      codes.empty() || std::find(codes.begin(), codes.end(), failure.exitCode) != codes.end();
  if (!has_code || rule.event.empty() || rule.event == failure.reason) return has_code;
  // Agents of protocol 8 and older called a loss that is not finite an Error.
  return rule.event == "Error" && failure.reason == kLossNotFinite;
}

}  // namespace

std::optional<size_t> rule_for(const std::vector<FailureRule>& rules,
                               const FailureStatus& failure) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (matches(rules[i], failure)) return i;
  }
  return std::nullopt;
}

}  // namespace lockstep::plan
