#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/api/training_job.h"

namespace lockstep::train {

// Steps whose batches training went on without.
struct SkippedSteps {
  int64_t first = 0;
  int64_t last = 0;

  bool operator==(const SkippedSteps&) const = default;
};

// The losses of a training so far, as a part of its position: a run that resumes judges losses as
// one that was never interrupted. Plain values.
struct LossRecord {
  static constexpr int64_t kSkipsMax = 16;

  // Exponential mean and variance of about kLossesAveraged losses; plain ones of the first ones.
  double mean = 0;
  double variance = 0;
  int64_t losses = 0;  // that the mean has
  int64_t skips = 0;   // entries of `skipped`, in the order of steps
  std::array<SkippedSteps, kSkipsMax> skipped{};

  bool operator==(const LossRecord&) const = default;
};

// Few, so that the fall at the beginning does not count as noise for long.
inline constexpr int64_t kLossesAveraged = 20;
// Losses after which a spike can be told from the usual noise.
inline constexpr int64_t kLossesMin = 100;

enum class LossVerdict { kGood, kNotFinite, kSpike };

// Judges a step by its loss and the norm of its gradients. A spike is a loss that is more than
// `rules.deviations` standard deviations above the mean; 1 % of the mean counts as one at least.
LossVerdict judge(const LossRecord& record, const LossRules& rules, double loss, double norm);

// Returns the loss above which judge() calls it a spike.
double spike_threshold(const LossRecord& record, const LossRules& rules);

// Adds a good loss.
void add_loss(LossRecord& record, double loss);

// Returns the first step whose update counts: 1, unless training went on without the first batches.
int64_t first_update(const LossRecord& record);

// Returns false if there is no room: the training has a problem that skipping does not solve.
[[nodiscard]] bool add_skip(LossRecord& record, const SkippedSteps& steps);

}  // namespace lockstep::train
