// Decides which rank is to blame when an operation goes wrong, and what Core reports about it.
#include <vector>

#include "agent/comm/core.h"
#include "agent/comm/message_text.h"

namespace lockstep::comm {
namespace {

// How long an operation with a broken connection waits for the control connections to report who
// ended: the other end may have closed only because a third rank ended.
constexpr Duration kVerdictLimit = std::chrono::milliseconds(300);
// More missed heartbeats than this are no accident.
constexpr int kMissedBeatsMax = 4;

}  // namespace

// Follows the chain from these ranks to those that they wait for. Returns the nearest rank that
// waits for nobody or gives no sign of life; -1 if they all wait for each other.
int Core::end_of_wait_chain(const AwaitedRanks& from) const {
  std::vector<bool> seen(static_cast<size_t>(world_size()));
  std::vector<int> queue;
  const auto add = [&](const AwaitedRanks& awaited) {
    for (const int rank : awaited.ranks) {
      if (rank < 0 || rank >= world_size() || rank == this->rank()) continue;
      if (seen[static_cast<size_t>(rank)]) continue;
      seen[static_cast<size_t>(rank)] = true;
      queue.push_back(rank);
    }
  };
  add(from);
  for (size_t i = 0; i < queue.size(); ++i) {
    const Control::Health health = control_->health(queue[i]);
    const bool is_unresponsive = health.silent >= kMissedBeatsMax * control_->heartbeat();
    if (is_unresponsive || health.pulse.waits_for.empty()) return queue[i];
    add(health.pulse.waits_for);
  }
  return -1;
}

// Blames the first of these that exists:
// - a rank that has given no sign of life at all
// - the rank at the end of the chain of those that wait for each other, in any groups, which waits
//   for nobody
// - the rank that is furthest behind in the collectives of the world
// - the rank that this one waits for
void Core::blame_silence(const Operation& operation, Duration silent) {
  int unresponsive = -1;
  int behind = -1;
  Duration longest = kMissedBeatsMax * control_->heartbeat();
  uint64_t least = operation.header.sequence;
  const bool of_world = operation.is_collective() && operation.header.group == 0;
  for (const int rank : operation.group()->ranks) {
    if (rank == this->rank()) continue;
    const Control::Health health = control_->health(rank);
    if (health.silent >= longest) {
      longest = health.silent;
      unresponsive = rank;
    }
    if (of_world && health.pulse.entered < least) {
      least = health.pulse.entered;
      behind = rank;
    }
  }
  const int end = end_of_wait_chain(operation.waits_for);
  const int suspect = unresponsive >= 0 ? unresponsive
                      : end >= 0        ? end
                      : behind >= 0     ? behind
                                        : operation.waits_for.first();
  std::string reason = rank_name(suspect) + " silent for " + seconds_text(silent);
  if (unresponsive >= 0) {
    reason += ", with no heartbeat for " + seconds_text(longest);
  } else if (suspect != operation.waits_for.first() && suspect == end) {
    reason += ": it waits for no rank, and " + rank_name(operation.waits_for.first()) +
              ", which this rank waits for, is blocked by it";
  } else if (behind >= 0 && suspect == behind) {
    reason += ": it is alive, but the last collective it entered is #" + std::to_string(least);
  }
  if (suspect >= 0) {
    const FrameHeader* other = ports_[static_cast<size_t>(suspect)].first_buffered_header();
    if (other != nullptr)
      reason += "; it has sent " + describe(*other) + ", which this rank has not called";
  }
  fail({.code = Code::kTimeout, .reason = reason, .suspect = suspect});
}

void Core::blame(const Operation& operation, const Error& error) {
  const int current_peer = operation.current_peer;
  Fault fault{.code = error.code, .reason = error.message, .suspect = current_peer};
  if (error.code == Code::kConflict) {
    fault.reason = rank_name(rank()) + " is " + error.message;
  } else if (error.code == Code::kUnavailable) {
    const TimePoint until = now() + kVerdictLimit;
    while (!control_->said_goodbye(current_peer) && now() < until &&
           !fault_.wait_for(std::chrono::milliseconds(2))) {
    }
    const bool left = control_->said_goodbye(current_peer);
    fault.reason = rank_name(current_peer) + (left ? " left" : " is gone: " + error.message);
  }
  fail(fault);
}

}  // namespace lockstep::comm
