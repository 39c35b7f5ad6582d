// What the driver does while nothing moves: who waits how long, whom that is told, and when to look
// again.
#include <algorithm>
#include <utility>

#include "agent/comm/core.h"
#include "agent/comm/words.h"

namespace lockstep {
namespace {

// From one look at who is silent to the next. Where it was far longer, this process stood still
// itself, perhaps with all others of its machine: that is nobody's silence.
constexpr Duration kLook = std::chrono::seconds(1);
// A wait that has lasted as long is told to the others.
constexpr Duration kTold = std::chrono::milliseconds(20);
// Nobody wakes the driver when somebody comes to stand in an operation: it looks so often.
constexpr Duration kLookForStanding = std::chrono::milliseconds(100);

}  // namespace

void Core::wait() {
  int who = -1;
  if (waits_for_one_who_left(&who)) {
    if (looked_after_leaving_) fail({.reason = rank_name(who) + " left", .suspect = who});
    looked_after_leaving_ = true;
    return;
  }
  const Look look = look_at_waits();
  if (look.silent != nullptr) {
    return blame_silence(*look.silent, look.at - look.silent->waiting_since);
  }
  tell_wait(look.standing);
  asleep_.store(true);
  if (!has_fresh_.load()) waiter_->pause(interests_, look.rest);
  asleep_.store(false);
  paused_ = true;
}

Core::Look Core::look_at_waits() {
  const TimePoint at = now();
  Look look{.at = at, .unseen = at - std::exchange(looked_at_, at), .rest = kLook};
  for (Operation* operation : active_) {
    if (operation->is_collective() && operation->group()->running != operation) continue;
    look_at_wait(*operation, look);
    if (look.silent != nullptr) break;
  }
  return look;
}

void Core::look_at_wait(Operation& operation, Look& look) const {
  if (!operation.waiting) {
    operation.waiting = true;
    operation.waiting_since = look.at;
  } else if (look.unseen > 2 * kLook) {
    operation.waiting_since += look.unseen;
  }
  const Duration silent = look.at - operation.waiting_since;
  if (silent >= operation.limit()) {
    look.silent = &operation;
    return;
  }
  look.rest = std::min(look.rest, operation.limit() - silent);
  if (operation.waits_for.empty()) return;
  if (!is_stood_in(operation)) {
    look.rest = std::min(look.rest, kLookForStanding);
    return;
  }
  const bool is_longest =
      look.standing == nullptr || operation.waiting_since < look.standing->waiting_since;
  if (silent < kTold) {
    look.rest = std::min(look.rest, kTold - silent);
  } else if (is_longest) {
    look.standing = &operation;
  }
}

// Whoever stands in a collective that queues behind another of its group stands in that one too.
bool Core::is_stood_in(const Operation& operation) const {
  if (!operation.is_collective()) return operation.is_stood_in();
  return std::any_of(active_.begin(), active_.end(), [&operation](const Operation* other) {
    return other->is_stood_in() && other->is_collective() && other->group() == operation.group();
  });
}

// Tells the others, or that there is nothing to be told any more.
void Core::tell_wait(const Operation* standing) {
  const AwaitedRanks waits_for = standing == nullptr ? AwaitedRanks() : standing->waits_for;
  if (told_ == standing && told_ranks_ == waits_for) return;
  told_ = standing;
  told_ranks_ = waits_for;
  {
    const std::lock_guard lock(pulse_mutex_);
    pulse_ranks_ = waits_for;
  }
  if (options_.board == nullptr) return;
  if (standing == nullptr) return options_.board->clear_wait();
  const Group& group = *standing->group();
  options_.board->set_wait(
      {.operation = name_of(standing->receives ? Collective::kReceive : standing->header.kind),
       .number = standing->header.sequence,
       .group = group.id,
       .size = static_cast<int64_t>(group.ranks.size()),
       .ranks = rank_list(group.ranks),
       .waits_for = waits_for,
       .since_nanoseconds = standing->waiting_since.time_since_epoch().count()});
}

bool Core::waits_for_one_who_left(int* who) const {
  if (control_ == nullptr) return false;
  for (const Interest& interest : interests_) {
    // Over TCP the end of the stream says so, behind all that was sent before it.
    if (interest.link->fd() >= 0 || !control_->left(interest.link->peer())) continue;
    *who = interest.link->peer();
    return true;
  }
  return false;
}

}  // namespace lockstep
