#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep::optim {

enum class ScheduleKind : uint8_t { kConstant, kLinear, kCosine, kWarmupStableDecay, kStep };

// Parses "constant", "linear", "cosine", "warmupStableDecay" or "step"; kInvalid for any other
// name.
Result<ScheduleKind> parse_schedule(std::string_view name);

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 0;
  double minimum = 0;  // the lowest rate after the warm-up
  int64_t warmup_steps = 0;
  int64_t steps = 0;                  // of the whole run
  int64_t decay_steps = 0;            // the last ones; for kWarmupStableDecay
  std::vector<int64_t> milestones{};  // ascending; for kStep, as `factor`
  double factor = 1;
};

// Returns the rate of optimizer step `step`, counted from 1: peak * step / warmup_steps while step
// <= warmup_steps. After that
// - kConstant: it is `peak`
// - kLinear, kCosine: it falls to `minimum` at step `steps` along a line or half a cosine wave
//   (Loshchilov and Hutter, "SGDR", 2017) and stays there
// - kWarmupStableDecay: it is `peak`, and falls along a line in the last `decay_steps` (Hu et al.,
//   "MiniCPM", 2024)
// - kStep: it is multiplied by `factor` after each milestone, as by PyTorch's MultiStepLR
double learning_rate(const LearningRateSchedule& schedule, int64_t step);

}  // namespace lockstep::optim
