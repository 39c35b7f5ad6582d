#include "agent/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

namespace lockstep::optim {

namespace {

constexpr std::array<std::string_view, 5> kNames = {"constant", "linear", "cosine",
                                                    "warmupStableDecay", "step"};

double rate_after_milestones(const LearningRateSchedule& schedule, int64_t step) {
  const auto passed = std::ranges::lower_bound(schedule.milestones, step);
  const auto times = static_cast<double>(passed - schedule.milestones.begin());
  return std::max(schedule.peak * std::pow(schedule.factor, times), schedule.minimum);
}

}  // namespace

Result<ScheduleKind> parse_schedule(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found != kNames.end()) return static_cast<ScheduleKind>(found - kNames.begin());
  return invalid("[schedule] expected constant, linear, cosine, warmupStableDecay or step, got \"" +
                     std::string(name) + "\"",
                 Blame::kConfig);
}

double learning_rate(const LearningRateSchedule& schedule, int64_t step) {
  const auto now = static_cast<double>(step);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  if (step <= schedule.warmup_steps) return schedule.peak * now / warmup;
  if (schedule.kind == ScheduleKind::kConstant) return schedule.peak;
  if (schedule.kind == ScheduleKind::kStep) return rate_after_milestones(schedule, step);
  const auto end = static_cast<double>(schedule.steps);
  const bool is_stable_first = schedule.kind == ScheduleKind::kWarmupStableDecay;
  const double begin = is_stable_first ? end - static_cast<double>(schedule.decay_steps) : warmup;
  const double span = end - begin;
  const double progress = span > 0 ? std::clamp((now - begin) / span, 0.0, 1.0) : 1.0;
  const double left = schedule.kind == ScheduleKind::kCosine
                          ? 0.5 * (1 + std::cos(std::numbers::pi * progress))
                          : 1 - progress;
  return schedule.minimum + (schedule.peak - schedule.minimum) * left;
}

}  // namespace lockstep::optim
