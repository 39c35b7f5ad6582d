#include "agent/train/checkpoint/state_keeper.h"

#include <array>

namespace lockstep::train {

std::optional<CopyPeers> copy_peers(int rank, int ranks, int ranks_per_node) {
  if (ranks <= ranks_per_node) return std::nullopt;
  return CopyPeers{.holder = (rank + ranks_per_node) % ranks,
                   .source = (rank + ranks - ranks_per_node) % ranks};
}

void StateKeeper::begin(const KeptState& state) {
  const TimePoint began = clock_.now();
  const std::span<float> to = own_.begin();
  copying_.start([this, to, state](const std::stop_token&) { return copy(to, state); });
  counts_.blocked_seconds += to_seconds(clock_.now() - began);
}

Status StateKeeper::copy(std::span<float> to, const KeptState& state) {
  const TimePoint began = clock_.now();
  TRY(model_.copy_share(to));
  own_.complete(state);
  if (held_) TRY(exchange(to, state));
  counts_.copies += 1;
  counts_.copy_seconds += to_seconds(clock_.now() - began);
  return {};
}

Status StateKeeper::exchange(std::span<float> mine, const KeptState& state) {
  const std::span<float> theirs = held_->states.begin();
  const std::array<comm::Call, 2> calls{
      comm::Call{.kind = comm::Collective::kSend,
                 .buffer = {.data = mine.data(), .count = std::ssize(mine)},
                 .rank = held_->peers.holder},
      comm::Call{.kind = comm::Collective::kReceive,
                 .buffer = {.data = theirs.data(), .count = std::ssize(theirs)},
                 .rank = held_->peers.source}};
  TRY(held_->group->run(calls));
  held_->states.complete(state);
  return {};
}

Status StateKeeper::wait() {
  if (!copying_.has_task()) return {};
  const TimePoint began = clock_.now();
  const Status copied = copying_.wait();
  counts_.blocked_seconds += to_seconds(clock_.now() - began);
  return copied;
}

}  // namespace lockstep::train
