#include "agent/node/speed_watch.h"

#include <utility>

namespace lockstep::node {
namespace {

constexpr std::pair<double WorkerSpeed::*, std::optional<double> StepNumbers::*> kParts[] = {
    {&WorkerSpeed::step_seconds, &StepNumbers::step_seconds},
    {&WorkerSpeed::data_seconds, &StepNumbers::data_seconds},
    {&WorkerSpeed::forward_seconds, &StepNumbers::forward_seconds},
    {&WorkerSpeed::backward_seconds, &StepNumbers::backward_seconds},
    {&WorkerSpeed::update_seconds, &StepNumbers::update_seconds}};

// A worker may write anything.
double seconds_of(const std::optional<double>& seconds) {
  return seconds && *seconds >= 0 && *seconds < kStepSecondsMax ? *seconds : 0;
}

}  // namespace

void SpeedWatch::observe(const ProgressNumbers& numbers, TimePoint now) {
  const int64_t step = numbers.step.value_or(0);
  if (numbers.phase != WorkerPhase::kTraining || step == step_) return;
  step_ = step;
  if (first_step_ < 0) first_step_ = step;
  if (step < first_step_ + kStepsLeftOut) {
    began_ = now;
    return;
  }
  for (const auto& [sum, part] : kParts) sums_.*sum += seconds_of(numbers.*part);
  ++steps_;
  if (now - began_ < kWindow || steps_ < kStepsMin) return;
  speed_.emplace();
  for (const auto& [sum, part] : kParts) {
    (*speed_).*sum = std::exchange(sums_.*sum, 0.0) / static_cast<double>(steps_);
  }
  steps_ = 0;
  began_ = now;
}

}  // namespace lockstep::node
