#include "common/api/hang_limit.h"

#include <algorithm>

#include "common/layout/pipeline_schedule.h"

namespace lockstep {
namespace {}  // namespace

double longest_step(const WorldAssignment& world, const BatchSpec& batch) {
  if (world.layout.schedule != pipeline_kind_name(PipelineKind::kPipeDream)) return 1;
  const int64_t samples = std::max<int64_t>(1, batch.global / world.data);
  const int64_t micro_batches = batch.micro > 0
                                    ? std::max<int64_t>(1, samples / batch.micro)
                                    : std::min(samples, kMicroBatchesPerStage * world.pipeline);
  return 1 + static_cast<double>(world.pipeline - 1) / static_cast<double>(micro_batches);
}

void HangLimit::add_step(Duration took) {
  is_after_pause_ = false;
  if (steps_.size() < kStepsKept) {
    steps_.push_back(took);
    return;
  }
  steps_[next_] = took;
  next_ = (next_ + 1) % kStepsKept;
}

Duration HangLimit::of_next_step() const {
  if (is_after_pause_ || steps_.size() < kStepsNeeded) return pause_;
  std::vector<Duration> sorted = steps_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const auto limit = std::chrono::duration_cast<Duration>(ratio_ * *middle);
  return std::clamp<Duration>(limit, floor_, std::max(floor_, pause_));
}

}  // namespace lockstep
