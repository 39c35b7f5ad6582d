#include "agent/node/board_watch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/api/hang_limit.h"

namespace lockstep::node {
namespace {

// Longest gap between two polls that counts against the rank.
constexpr Duration kPollGapMax = std::chrono::seconds(2);

WorkerWait worker_wait(const RankWait& wait) {
  WorkerWait reported{.operation = wait.operation + " #" + std::to_string(wait.number),
                      .ranks = wait.ranks,
                      .group_size = std::max<int64_t>(wait.size, 0)};
  for (const int rank : wait.waits_for.ranks) {
    if (rank >= 0) reported.waits_for.push_back(rank);
  }
  return reported;
}

}  // namespace

BoardWatch::RankHealth BoardWatch::poll(const CollectiveBoard& board, TimePoint now) {
  const Duration unseen = now - std::exchange(polled_at_, now);
  if (unseen > kPollGapMax) beat_at_ += unseen;
  if (const uint64_t beats = board.beats(); beats != beats_) {
    beats_ = beats;
    beat_at_ = now;
  }
  RankHealth health{.is_lifeless = beats_ > 0 && now - beat_at_ >= kLifeless};
  const std::optional<RankWait> wait = board.wait();
  if (!wait) return health;
  const TimePoint since{Duration(wait->since_nanoseconds)};
  if (now - since < kWaitReportDelay) return health;
  health.wait = worker_wait(*wait);
  health.waits_since = since;
  return health;
}

}  // namespace lockstep::node
