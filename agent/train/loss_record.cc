#include "agent/train/loss_record.h"

#include <algorithm>
#include <cmath>

namespace lockstep::train {
namespace {

constexpr double kLeastDeviation = 0.01;  // of the mean: losses of a constant have none

}  // namespace

double spike_threshold(const LossRecord& record, const LossRules& rules) {
  const double deviation =
      std::max(std::sqrt(record.variance), kLeastDeviation * std::abs(record.mean));
  return record.mean + static_cast<double>(rules.deviations) * deviation;
}

LossVerdict judge(const LossRecord& record, const LossRules& rules, double loss, double norm) {
  if (!std::isfinite(loss) || !std::isfinite(norm)) return LossVerdict::kNotFinite;
  const bool looks = !rules.spike.empty() && record.losses >= kLossesMin;
  return looks && loss > spike_threshold(record, rules) ? LossVerdict::kSpike : LossVerdict::kGood;
}

void add_loss(LossRecord& record, double loss) {
  record.losses += 1;
  const double weight = 1.0 / static_cast<double>(std::min(record.losses, kLossesAveraged));
  const double difference = loss - record.mean;
  record.mean += weight * difference;
  record.variance = (1 - weight) * (record.variance + weight * difference * difference);
}

int64_t first_update(const LossRecord& record) {
  int64_t first = 1;
  for (int64_t i = 0; i < record.skips; ++i) {
    const SkippedSteps& skipped = record.skipped[static_cast<size_t>(i)];
    if (skipped.first <= first) first = std::max(first, skipped.last + 1);
  }
  return first;
}

bool add_skip(LossRecord& record, const SkippedSteps& steps) {
  if (record.skips >= LossRecord::kSkipsMax) return false;
  record.skipped[static_cast<size_t>(record.skips++)] = steps;
  return true;
}

}  // namespace lockstep::train
