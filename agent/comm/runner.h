#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "agent/comm/comm_limits.h"
#include "agent/comm/operation.h"
#include "agent/comm/port.h"
#include "agent/comm/waiter.h"
#include "common/base/result.h"

namespace lockstep::comm {

// Carries out plans on ports. Operations with frames for the same rank take turns, a frame each. No
// lane runs further ahead of its receiver than its window; the receiver sends a credit for each
// half of it that it has taken. One thread at a time.
class Runner {
 public:
  // `ports`: by rank of the world.
  explicit Runner(std::vector<Port>& ports, const CommLimits& limits = {})
      : ports_(ports), limits_(limits) {}

  // Moves what can move of the operation, once through its lanes; returns whether anything did.
  // Afterwards plan().finished() tells whether the operation is over. Adds what the operation waits
  // for to `reasons`.
  Result<bool> step(Operation& operation, std::vector<WaitReason>& reasons);

  // Payload bytes of all frames sent and received so far.
  Traffic traffic() const {
    return {sent_.load(), received_.load(), sent_off_host_.load(), lent_.load()};
  }

 private:
  struct Turn;
  Status move_local(Turn& turn, Lane& lane);
  Status move_out(Turn& turn, Lane& lane);
  Status move_in(Turn& turn, Lane& lane);
  Status begin_frame(Turn& turn, Port& port, Lane& lane);
  Result<bool> end_loan(Turn& turn, Port& port, Lane& lane);
  void account(Turn& turn, const Port& port, Lane& lane, size_t bytes);
  Status give_credit(Turn& turn, Port& port, Lane& lane);
  Status take(Turn& turn, Port& port, Lane& lane, size_t limit);
  void finish(Turn& turn, Lane& lane);
  void copy(std::byte* into, const std::byte* from, size_t bytes) const;
  Result<size_t> receive(Port& port, const Move& move, std::span<std::byte> into) const;
  // How many bytes of the lane may be sent in total.
  size_t send_limit(const Lane& lane) const { return std::max(lane.credit, limits_.window_bytes); }
  bool owes_credit(const Lane& lane) const;
  // State of a lane's move: bytes that may be sent now, bytes not sent yet, and whether they are
  // lent.
  struct Waiting {
    size_t ready = 0;
    size_t rest = 0;
    bool lends = false;
  };
  struct Piece {
    size_t bytes = 0;
    bool is_lent = false;
  };
  Piece next_piece(const Lane& lane, const Waiting& waiting) const;
  bool lends(Operation& operation, const Port& port, const Lane& lane) const;

  std::vector<Port>& ports_;
  const CommLimits limits_;
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> received_{0};
  std::atomic<uint64_t> sent_off_host_{0};
  std::atomic<uint64_t> lent_{0};
};

}  // namespace lockstep::comm
