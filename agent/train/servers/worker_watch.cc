#include "agent/train/servers/worker_watch.h"

#include <algorithm>
#include <utility>

namespace lockstep::train {
namespace {

// Longest gap between two looks that counts against a worker.
constexpr Duration kGapMax = std::chrono::seconds(2);
constexpr uint64_t kStepsTakenMax = 5;  // of one look
constexpr char kStep[] = "step";

}  // namespace

// All but the first of several steps have begun since the look before, however long ago that one
// has.
void WorkerWatch::take_steps(uint64_t steps, TimePoint looked_at, TimePoint now) {
  const bool knows_first = step_at_ != TimePoint{};
  const uint64_t known = knows_first ? steps : steps - 1;
  if (known == 0 || !knows_step_) return;
  const Duration took = now - (knows_first ? step_at_ : looked_at);
  for (uint64_t i = 0; i < std::min(known, kStepsTakenMax); ++i) {
    limit_.add_step(took / static_cast<int64_t>(known));
  }
}

void WorkerWatch::look(uint64_t step, std::optional<AwaitedWorkers> awaited, TimePoint now) {
  const TimePoint looked_at = std::exchange(looked_at_, now);
  const Duration unseen = now - looked_at;
  if (step != step_ && step > 0) {
    if (step > step_) take_steps(step - step_, looked_at, now);
    knows_step_ = true;
    step_ = step;
    step_at_ = now;
    since_ = now;
  }
  if (awaited && awaited->operation != kStep) {
    limit_.note_pause();
    step_at_ = TimePoint{};  // the next step's time will not be that of a step alone
  }
  if (awaited != awaited_) {
    awaited_ = std::move(awaited);
    since_ = now;
  } else if (unseen > kGapMax) {
    since_ += unseen;
  }
}

std::optional<uint32_t> WorkerWatch::hung(TimePoint now) const {
  if (!awaited_) return std::nullopt;
  const bool is_step = awaited_->operation == kStep;
  const bool is_first_alone = awaited_->ranks.size() == 1 && awaited_->ranks.front() == 0;
  if (!is_step && is_first_alone) return std::nullopt;
  const Duration limit = is_step ? limit_.of_next_step() : limit_.of_pause();
  if (now - since_ < limit) return std::nullopt;
  return awaited_->ranks.front();
}

}  // namespace lockstep::train
