#include "agent/node/board_watch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/api/hang_limit.h"

namespace lockstep {
namespace {

// Longest gap between two looks that counts against the rank.
constexpr Duration kLookMax = std::chrono::seconds(2);

WorkerWait as_told(const RankWait& wait) {
  WorkerWait told{.operation = wait.operation + " #" + std::to_string(wait.number),
                  .ranks = wait.ranks,
                  .group_size = std::max<int64_t>(wait.size, 0)};
  for (const int rank : wait.waits_for.ranks) {
    if (rank >= 0) told.waits_for.push_back(rank);
  }
  return told;
}

}  // namespace

BoardWatch::Sight BoardWatch::look(const CollectiveBoard& board, TimePoint now) {
  const Duration unseen = now - std::exchange(looked_at_, now);
  if (unseen > kLookMax) beat_at_ += unseen;
  if (const uint64_t beats = board.beats(); beats != beats_) {
    beats_ = beats;
    beat_at_ = now;
  }
  Sight sight{.is_lifeless = beats_ > 0 && now - beat_at_ >= kLifeless};
  const std::optional<RankWait> wait = board.wait();
  if (!wait) return sight;
  const TimePoint since{Duration(wait->since_nanoseconds)};
  if (now - since < kWaitTold) return sight;
  sight.wait = as_told(*wait);
  sight.waits_since = since;
  return sight;
}

}  // namespace lockstep
