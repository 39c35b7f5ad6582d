#include "agent/train/servers/worker_watch.h"

#include <utility>

namespace lockstep::train {
namespace {

// Longest gap between two looks that counts against a worker.
constexpr Duration kGapMax = std::chrono::seconds(2);
constexpr char kStep[] = "step";

}  // namespace

void WorkerWatch::look(uint64_t step, std::optional<AwaitedWorkers> awaited, TimePoint now) {
  const Duration unseen = now - std::exchange(looked_at_, now);
  if (step != step_) {
    if (step_at_ != TimePoint{} && step > step_) {
      limit_.add_step((now - step_at_) / static_cast<int64_t>(step - step_));
    }
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
