#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"

namespace lockstep::optim {

enum class ScheduleKind : uint8_t { kConstant, kLinear, kCosine };

// Parses "constant", "linear" or "cosine"; kInvalid for any other name.
Result<ScheduleKind> parse_schedule(std::string_view name);

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 0;
  double minimum = 0;  // the final rate of linear and cosine
  int64_t warmup_steps = 0;
  int64_t steps = 0;  // of the whole run
};

// Returns the rate of optimizer step `step`, counted from 1: peak * step / warmup_steps while step
// <= warmup_steps. After that it is constant, or falls to `minimum` at step `steps` along a line or
// half a cosine wave (Loshchilov and Hutter, "SGDR", 2017) and stays there.
double learning_rate(const LearningRateSchedule& schedule, int64_t step);

}  // namespace lockstep::optim
