#include "agent/node/hang_watch.h"

#include <utility>

namespace lockstep::node {
namespace {

// Longest gap between two polls that counts against the rank.
constexpr Duration kPollGapMax = std::chrono::seconds(2);

}  // namespace

bool HangWatch::is_hung(const ProgressNumbers& numbers, TimePoint now) {
  const Duration unseen = now - std::exchange(polled_at_, now);
  if (numbers.phase != WorkerPhase::kTraining) {
    since_.reset();
    return false;
  }
  const int64_t step = numbers.step.value_or(0);
  if (!since_ || step != step_) {
    if (since_ && step > step_) limit_.add_step((now - *since_) / (step - step_));
    since_ = now;
    step_ = step;
    return false;
  }
  if (unseen > kPollGapMax) *since_ += unseen;
  return now - *since_ >= limit_.of_next_step();
}

bool SilenceWatch::is_silent(uint64_t signs, TimePoint now) {
  const Duration unseen = now - std::exchange(polled_at_, now);
  if (signs != signs_) {
    signs_ = signs;
    heard_at_ = now;
  } else if (unseen > kPollGapMax) {
    heard_at_ += unseen;
  }
  return signs_ > 0 && now - heard_at_ >= limit_;
}

}  // namespace lockstep::node
