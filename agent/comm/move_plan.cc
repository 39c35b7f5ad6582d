#include "agent/comm/move_plan.h"

#include "common/base/check.h"

namespace lockstep::comm {

void MovePlan::clear(int ranks) {
  moves_.clear();
  lanes_.clear();
  lane_by_peer_.assign(static_cast<size_t>(ranks) * 2 + 1, -1);
  scratch_ = 0;
  unfinished_ = 0;
  finished_prefix_ = 0;
}

Lane& MovePlan::lane_of(const Move& move) {
  const bool here = move.kind == Move::Kind::kCopy || move.kind == Move::Kind::kCombine;
  const bool out = move.kind == Move::Kind::kSend;
  const size_t key = here ? lane_by_peer_.size() - 1
                          : static_cast<size_t>(move.peer) * 2 + static_cast<size_t>(out ? 0 : 1);
  int& index = lane_by_peer_[key];
  if (index < 0) {
    index = static_cast<int>(lanes_.size());
    const auto direction = here  ? Lane::Direction::kLocal
                           : out ? Lane::Direction::kOut
                                 : Lane::Direction::kIn;
    lanes_.push_back({.direction = direction, .peer = move.peer});
  }
  return lanes_[static_cast<size_t>(index)];
}

int MovePlan::add(const Move& move) {
  const int index = static_cast<int>(moves_.size());
  CHECK(move.after < index && move.overwrites_after < index && move.starts_after < index);
  Lane& lane = lane_of(move);
  lane.bytes += move.bytes;
  moves_.push_back(move);
  for (const int made : {move.after, move.starts_after}) {
    if (made != Move::kNone) moves_[static_cast<size_t>(made)].feeds_another = true;
  }
  if (lane.tail == Move::kNone) {
    lane.head = index;
  } else {
    Move& last = moves_[static_cast<size_t>(lane.tail)];
    last.next = index;
    moves_.back().step = last.step + 1;
  }
  lane.tail = index;
  ++unfinished_;
  return index;
}

bool MovePlan::finished_before(int index) {
  while (finished_prefix_ < moves_.size() && moves_[finished_prefix_].finished) ++finished_prefix_;
  return finished_prefix_ >= static_cast<size_t>(index);
}

void MovePlan::finish(Lane& lane) {
  Move& done = move(lane.head);
  CHECK(!done.finished && done.moved == done.bytes);
  done.finished = true;
  lane.head = done.next;
  --unfinished_;
}

}  // namespace lockstep::comm
