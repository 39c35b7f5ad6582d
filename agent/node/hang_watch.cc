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
  if (!since_ || numbers.step != step_) {
    if (since_ && numbers.step > step_) limit_.add_step((now - *since_) / (numbers.step - step_));
    since_ = now;
    step_ = numbers.step;
    return false;
  }
  if (unseen > kPollGapMax) *since_ += unseen;
  return now - *since_ >= limit_.of_next_step();
}

}  // namespace lockstep::node
