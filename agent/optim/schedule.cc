#include "agent/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace lockstep::optim {

Result<ScheduleKind> parse_schedule(std::string_view name) {
  if (name == "constant") return ScheduleKind::kConstant;
  if (name == "linear") return ScheduleKind::kLinear;
  if (name == "cosine") return ScheduleKind::kCosine;
  return invalid(
      "[schedule] expected constant, linear or cosine, got \"" + std::string(name) + "\"",
      Blame::kConfig);
}

double learning_rate(const LearningRateSchedule& schedule, int64_t step) {
  const auto now = static_cast<double>(step);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  if (step <= schedule.warmup_steps) return schedule.peak * now / warmup;
  if (schedule.kind == ScheduleKind::kConstant) return schedule.peak;
  const double span = static_cast<double>(schedule.steps) - warmup;
  const double progress = span > 0 ? std::min(1.0, (now - warmup) / span) : 1.0;
  const double left = schedule.kind == ScheduleKind::kLinear
                          ? 1 - progress
                          : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return schedule.minimum + (schedule.peak - schedule.minimum) * left;
}

}  // namespace lockstep::optim
