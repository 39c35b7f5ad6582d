// The driver's work while nothing moves: who waits for how long, what it reports of that, and when
// it checks again.
#include <algorithm>
#include <utility>

#include "agent/comm/core.h"
#include "agent/comm/message_text.h"

namespace lockstep::comm {
namespace {

// Time from one check for silent ranks to the next. If it was far longer, this process itself was
// stopped, perhaps with all others of its machine; that is not another rank's silence.
constexpr Duration kIdleCheckInterval = std::chrono::seconds(1);
// A wait that has lasted this long is reported to the others.
constexpr Duration kReportWaitAfter = std::chrono::milliseconds(20);
// Nobody wakes the driver when a program blocks in an operation, so the driver checks this often.
constexpr Duration kBlockedPollInterval = std::chrono::milliseconds(100);

}  // namespace

void Core::wait() {
  int departed = -1;
  if (waits_for_departed_rank(&departed)) {
    if (rechecked_after_goodbye_)
      fail({.reason = rank_name(departed) + " left", .suspect = departed});
    rechecked_after_goodbye_ = true;
    return;
  }
  const WaitSummary summary = summarize_waits();
  if (summary.silent != nullptr) {
    return blame_silence(*summary.silent, summary.at - summary.silent->waiting_since);
  }
  report_wait(summary.longest_blocked);
  asleep_.store(true);
  if (!has_submitted_.load()) waiter_->pause(wait_reasons_, summary.next_check_in);
  asleep_.store(false);
  paused_ = true;
}

Core::WaitSummary Core::summarize_waits() {
  const TimePoint at = now();
  WaitSummary summary{.at = at,
                      .since_last_check = at - std::exchange(checked_at_, at),
                      .next_check_in = kIdleCheckInterval};
  for (Operation* operation : active_) {
    if (operation->is_collective() && operation->group()->running != operation) continue;
    summarize_wait(*operation, summary);
    if (summary.silent != nullptr) break;
  }
  return summary;
}

void Core::summarize_wait(Operation& operation, WaitSummary& summary) const {
  if (!operation.waiting) {
    operation.waiting = true;
    operation.waiting_since = summary.at;
  } else if (summary.since_last_check > 2 * kIdleCheckInterval) {
    operation.waiting_since += summary.since_last_check;
  }
  const Duration silent = summary.at - operation.waiting_since;
  if (silent >= operation.limit()) {
    summary.silent = &operation;
    return;
  }
  summary.next_check_in = std::min(summary.next_check_in, operation.limit() - silent);
  if (operation.waits_for.empty()) return;
  if (!is_blocked_on(operation)) {
    summary.next_check_in = std::min(summary.next_check_in, kBlockedPollInterval);
    return;
  }
  // An operation may be started long before its program has nothing else to do.
  if (operation.blocked_since < operation.waiting_since) operation.blocked_since = summary.at;
  const Duration blocked = summary.at - operation.blocked_since;
  const bool is_longest = summary.longest_blocked == nullptr ||
                          operation.blocked_since < summary.longest_blocked->blocked_since;
  if (blocked < kReportWaitAfter) {
    summary.next_check_in = std::min(summary.next_check_in, kReportWaitAfter - blocked);
  } else if (is_longest) {
    summary.longest_blocked = &operation;
  }
}

// A program that is blocked in a queued collective also waits for the earlier ones of its group.
bool Core::is_blocked_on(const Operation& operation) const {
  if (!operation.is_collective()) return operation.is_blocked_on();
  return std::any_of(active_.begin(), active_.end(), [&operation](const Operation* other) {
    return other->is_blocked_on() && other->is_collective() && other->group() == operation.group();
  });
}

// Reports the wait to the others or, with null, that there is none any more.
void Core::report_wait(const Operation* blocked) {
  const AwaitedRanks waits_for = blocked == nullptr ? AwaitedRanks() : blocked->waits_for;
  if (reported_ == blocked && reported_ranks_ == waits_for) return;
  reported_ = blocked;
  reported_ranks_ = waits_for;
  {
    const std::lock_guard lock(pulse_mutex_);
    pulse_ranks_ = waits_for;
  }
  if (options_.board == nullptr) return;
  if (blocked == nullptr) return options_.board->clear_wait();
  const Group& group = *blocked->group();
  options_.board->set_wait(
      {.operation = name_of(blocked->receives ? Collective::kReceive : blocked->header.kind),
       .number = blocked->header.sequence,
       .group = group.id,
       .size = static_cast<int64_t>(group.ranks.size()),
       .ranks = rank_list(group.ranks),
       .waits_for = waits_for,
       .since_nanoseconds = blocked->blocked_since.time_since_epoch().count()});
}

bool Core::waits_for_departed_rank(int* rank) const {
  if (control_ == nullptr) return false;
  for (const WaitReason& reason : wait_reasons_) {
    // Over TCP the end of the stream reports this, after everything that was sent before.
    if (reason.link->fd() >= 0 || !control_->said_goodbye(reason.link->peer())) continue;
    *rank = reason.link->peer();
    return true;
  }
  return false;
}

}  // namespace lockstep::comm
