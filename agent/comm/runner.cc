#include "agent/comm/runner.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "agent/comm/copy.h"
#include "agent/comm/loans.h"
#include "agent/comm/message_text.h"
#include "agent/comm/reduce.h"
#include "common/layout/collective_cost.h"

namespace lockstep::comm {
namespace {

using Kind = Move::Kind;

// A frame that does not end its step has at least this length. So data that arrives piece by piece
// is passed on in pieces that are worth a header and stay in the cache in between.
constexpr size_t kPiece = kPieceBytes;

// Returns how many bytes of a move may go, given how far another one has gone. `theirs` is where
// the other one begins in the area, `ours` where this one begins.
size_t available_bytes(const Move& other, size_t theirs, size_t ours, size_t bytes) {
  if (other.finished) return bytes;
  const size_t end = theirs + other.moved;
  return end <= ours ? 0 : std::min(bytes, end - ours);
}

// Whether no part of the move may go yet.
bool is_gated(MovePlan& plan, int index) {
  const Move& move = plan.move(index);
  if (move.starts_after != Move::kNone && !plan.move(move.starts_after).finished) return true;
  return move.is_barrier && !plan.finished_before(index);
}

// Returns up to where the move may go now.
size_t ready_end(MovePlan& plan, int index) {
  const Move& move = plan.move(index);
  if (is_gated(plan, index)) return 0;
  size_t bytes = move.bytes;
  if (move.after != Move::kNone) {
    const Move& other = plan.move(move.after);
    bytes = std::min(bytes, available_bytes(other, other.into.at, move.from.at, move.bytes));
  }
  if (move.overwrites_after != Move::kNone) {
    const Move& other = plan.move(move.overwrites_after);
    bytes = std::min(bytes, available_bytes(other, other.from.at, move.into.at, move.bytes));
  }
  return bytes;
}

// Whether the move has to wait. Also covers moves without bytes.
bool must_wait(MovePlan& plan, int index) {
  const Move& move = plan.move(index);
  if (is_gated(plan, index)) return true;
  return move.bytes == 0 && move.after != Move::kNone && !plan.move(move.after).finished;
}

}  // namespace

struct Runner::Turn {
  Operation& operation;
  std::vector<WaitReason>& reasons;
  bool moved = false;

  void wait_for_room(Port& port) { wait({.link = &port.link(), .input = false}); }
  void wait_for_input(Port& port) {
    wait({.link = &port.link(), .input = true, .missing = port.missing()});
  }

 private:
  void wait(const WaitReason& reason) {
    operation.waits_for.add(reason.link->peer());
    reasons.push_back(reason);
  }
};

void Runner::copy(std::byte* into, const std::byte* from, size_t bytes) const {
  if (bytes >= limits_.past_cache_bytes) {
    copy_past_cache(into, from, bytes);
  } else {
    std::memcpy(into, from, bytes);
  }
}

// For the receiver: whether half of what it has allowed is taken, and more will come.
bool Runner::owes_credit(const Lane& lane) const {
  return send_limit(lane) < lane.bytes &&
         lane.bytes_done + limits_.window_bytes / 2 >= send_limit(lane);
}

// Returns no bytes while the window is full.
Runner::Piece Runner::next_piece(const Lane& lane, const Waiting& waiting) const {
  const size_t window = std::min(send_limit(lane) - lane.bytes_done, limits_.window_bytes);
  const size_t most = std::min(waiting.ready, window);
  const bool is_lent = waiting.lends && most >= std::min(waiting.rest, kPiece);
  const size_t bytes = is_lent ? most : std::min(most, limits_.frame_bytes_max);
  return {.bytes = bytes < waiting.rest ? bytes - bytes % kFrameAlign : bytes, .is_lent = is_lent};
}

Result<size_t> Runner::receive(Port& port, const Move& move, std::span<std::byte> into) const {
  const bool in_memory = port.link().fd() < 0;
  if (!in_memory || port.is_lent() || move.feeds_another || move.bytes < limits_.past_cache_bytes) {
    return port.read(into);
  }
  TRY_ASSIGN(const Bytes piece, port.peek(1, std::min(into.size(), kPiece)));
  if (piece.empty()) return size_t{0};
  copy_past_cache(into.data(), piece.data(), piece.size());
  const size_t taken = piece.size();
  TRY(port.consume(taken));
  return taken;
}

void Runner::finish(Turn& turn, Lane& lane) {
  turn.operation.plan().finish(lane);
  turn.moved = true;
}

Result<bool> Runner::step(Operation& operation, std::vector<WaitReason>& reasons) {
  Turn turn{.operation = operation, .reasons = reasons};
  operation.waits_for = {};
  for (Lane& lane : operation.plan().lanes()) {
    if (lane.head == Move::kNone) continue;
    switch (lane.direction) {
      case Lane::Direction::kLocal:
        TRY(move_local(turn, lane));
        break;
      case Lane::Direction::kOut:
        TRY(move_out(turn, lane));
        break;
      case Lane::Direction::kIn:
        TRY(move_in(turn, lane));
        break;
    }
  }
  return turn.moved;
}

Status Runner::move_local(Turn& turn, Lane& lane) {
  Operation& operation = turn.operation;
  MovePlan& plan = operation.plan();
  while (lane.head != Move::kNone) {
    Move& move = plan.move(lane.head);
    // All in one go: what the move depends on is small, or finished long ago.
    if (must_wait(plan, lane.head) || ready_end(plan, lane.head) < move.bytes) return {};
    std::byte* into = operation.at(move.into);
    const std::byte* from = operation.at(move.from);
    const size_t elements = move.bytes / data_type_bytes(operation.header.type);
    const int ranks = static_cast<int>(operation.group()->ranks.size());
    const FrameHeader& header = operation.header;
    if (move.kind == Kind::kCombine) {
      reduce(header.type, header.op,
             {.into = into, .a = from, .b = operation.at(move.with), .count = elements});
      if (move.averages) divide_by_ranks(header.type, into, elements, ranks);
    } else if (ranks == 1 && header.op == ReduceOp::kLor) {
      reduce(header.type, header.op, {.into = into, .a = from, .b = from, .count = elements});
    } else if (into != from && move.bytes > 0) {
      copy(into, from, move.bytes);
    }
    move.moved = move.bytes;
    finish(turn, lane);
  }
  return {};
}

Status Runner::move_out(Turn& turn, Lane& lane) {
  Operation& operation = turn.operation;
  const int peer = operation.world_rank(lane.peer);
  Port& port = ports_[static_cast<size_t>(peer)];
  operation.current_peer = peer;
  while (lane.head != Move::kNone) {
    if (lane.loan != 0 && port.sender() != &lane) {
      TRY_ASSIGN(const bool ended, end_loan(turn, port, lane));
      if (!ended) return {};
      continue;
    }
    if (port.sender() != &lane) {
      TRY(begin_frame(turn, port, lane));
      if (port.sender() != &lane) return {};
    }
    TRY_ASSIGN(const bool moved, port.push());
    turn.moved = turn.moved || moved;
    if (port.sender() != nullptr) {
      turn.wait_for_room(port);
      return {};
    }
    if (lane.loan == 0) account(turn, port, lane, lane.frame_bytes);
  }
  return {};
}

// Records that these bytes of the lane have gone.
void Runner::account(Turn& turn, const Port& port, Lane& lane, size_t bytes) {
  Move& move = turn.operation.plan().move(lane.head);
  move.moved += bytes;
  lane.bytes_done += bytes;
  sent_.fetch_add(bytes, std::memory_order_relaxed);
  if (port.leaves_host()) sent_off_host_.fetch_add(bytes, std::memory_order_relaxed);
  if (move.moved == move.bytes) finish(turn, lane);
}

// Whether the operation lends its current move on the lane.
bool Runner::lends(Operation& operation, const Port& port, const Lane& lane) const {
  const CollectiveTraits& what = traits(operation.header.kind);
  const LoanRange& range = what.has_root || what.is_message ? limits_.one_way_loans : limits_.loans;
  return range.holds(operation.plan().move(lane.head).bytes) && !what.reduces &&
         !lane.loans_refused && port.lends();
}

// Begins a frame with what is ready of the lane's move, unless the move has to wait.
Status Runner::begin_frame(Turn& turn, Port& port, Lane& lane) {
  Operation& operation = turn.operation;
  MovePlan& plan = operation.plan();
  const Move& move = plan.move(lane.head);
  const Waiting waiting{.ready = ready_end(plan, lane.head) - move.moved,
                        .rest = move.bytes - move.moved,
                        .lends = lends(operation, port, lane)};
  if (must_wait(plan, lane.head) || (waiting.ready < waiting.rest && waiting.ready < kPiece))
    return {};
  Piece piece = next_piece(lane, waiting);
  if (piece.bytes == 0 && waiting.rest > 0) {
    TRY_ASSIGN(lane.credit, port.credit(operation.header, lane.credit));
    piece = next_piece(lane, waiting);
    if (piece.bytes == 0) {
      turn.wait_for_input(port);
      return {};
    }
  }
  if (!port.may_begin(&lane)) {
    turn.wait_for_room(port);
    return {};
  }
  FrameHeader header = operation.header;
  header.step = move.step;
  header.total = move.bytes;
  header.bytes = static_cast<uint32_t>(piece.bytes);
  lane.frame_bytes = piece.bytes;
  const std::byte* payload = operation.at(move.from) + move.moved;
  if (piece.is_lent) {
    lane.loan = port.begin_loan(&lane, header, payload);
  } else {
    port.begin(&lane, header, payload);
  }
  return {};
}

// Returns whether the receiver has returned the loan.
Result<bool> Runner::end_loan(Turn& turn, Port& port, Lane& lane) {
  TRY_ASSIGN(const std::optional<size_t> taken, port.link().loans()->returned(lane.loan));
  if (!taken.has_value()) {
    turn.wait_for_room(port);
    return false;
  }
  lane.loan = 0;
  lane.loans_refused = *taken < lane.frame_bytes;
  turn.moved = true;
  lent_.fetch_add(*taken, std::memory_order_relaxed);
  account(turn, port, lane, *taken);
  return true;
}

// Allows the sender more.
Status Runner::give_credit(Turn& turn, Port& port, Lane& lane) {
  if (port.sender() != &lane) {
    if (!port.may_begin(&lane)) {
      turn.wait_for_room(port);
      return {};
    }
    lane.credit = lane.bytes_done + limits_.window_bytes;
    FrameHeader header = turn.operation.header;
    header.step = kCreditStep;
    header.total = lane.credit;
    port.begin(&lane, header, nullptr);
  }
  TRY_ASSIGN(const bool moved, port.push());
  turn.moved = turn.moved || moved;
  if (port.sender() != nullptr) turn.wait_for_room(port);
  return {};
}

Status Runner::move_in(Turn& turn, Lane& lane) {
  Operation& operation = turn.operation;
  MovePlan& plan = operation.plan();
  const int peer = operation.world_rank(lane.peer);
  Port& port = ports_[static_cast<size_t>(peer)];
  operation.current_peer = peer;
  while (lane.head != Move::kNone) {
    if (owes_credit(lane) || port.sender() == &lane) TRY(give_credit(turn, port, lane));
    Move& move = plan.move(lane.head);
    const size_t limit = ready_end(plan, lane.head);
    if (must_wait(plan, lane.head) || (limit == move.moved && move.bytes > 0)) return {};
    FrameHeader expected = operation.header;
    expected.step = move.step;
    expected.total = move.bytes;
    TRY_ASSIGN(const Port::Next next, port.match_next(expected));
    if (next == Port::Next::kMatches) {
      const size_t before = move.moved;
      TRY(take(turn, port, lane, limit));
      if (move.moved == move.bytes) {
        finish(turn, lane);
        continue;
      }
      // Pass on what was received before taking more.
      if (move.moved > before && (move.kind == Kind::kReduce || port.is_lent())) return {};
      if (move.moved > before) continue;
    }
    turn.wait_for_input(port);
    return {};
  }
  return {};
}

// Takes what has arrived of the frame in front, up to the limit.
Status Runner::take(Turn& turn, Port& port, Lane& lane, size_t limit) {
  Operation& operation = turn.operation;
  Move& move = operation.plan().move(lane.head);
  const size_t left = port.left();
  if (left > move.bytes - move.moved) {
    return corrupt(rank_name(operation.current_peer) + " sent more than it announced");
  }
  if (lane.bytes_done + left > send_limit(lane)) {
    return corrupt(rank_name(operation.current_peer) + " sent more than its credit allows");
  }
  if (left == 0) {
    turn.moved = true;
    return port.finish_empty();
  }
  const size_t at_most = std::min(left, limit - move.moved);
  const size_t element = data_type_bytes(operation.header.type);
  std::byte* into = operation.at(move.into) + move.moved;
  size_t taken = 0;
  if (move.kind == Kind::kReceive) {
    TRY_ASSIGN(taken, receive(port, move, {into, at_most}));
  } else {
    TRY_ASSIGN(const Bytes piece, port.peek(element, std::min(at_most, kPiece)));
    const size_t count = piece.size() / element;
    if (count > 0) {
      const void* mine = operation.at(move.from) + move.moved;
      const void* theirs = piece.data();
      if (move.peer_first) std::swap(mine, theirs);
      const FrameHeader& header = operation.header;
      reduce(header.type, header.op, {.into = into, .a = mine, .b = theirs, .count = count});
      if (move.averages) {
        const int ranks = static_cast<int>(operation.group()->ranks.size());
        divide_by_ranks(header.type, into, count, ranks);
      }
      taken = count * element;
      TRY(port.consume(taken));
    }
  }
  move.moved += taken;
  lane.bytes_done += taken;
  received_.fetch_add(taken, std::memory_order_relaxed);
  turn.moved = turn.moved || taken > 0 || port.left() == 0;
  return {};
}

}  // namespace lockstep::comm
