#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::comm {

// Where bytes are: in the caller's input or output, or in the operation's own memory.
enum class Area : uint8_t { kInput, kOutput, kScratch };
struct Place {
  Area area = Area::kOutput;
  size_t at = 0;  // bytes
};

// One step of a rank in an operation: bytes that it sends or receives, or moves locally. A move
// goes on byte by byte as far as the moves that it depends on, so that hops overlap.
struct Move {
  enum class Kind : uint8_t {
    kSend,     // `from` to the peer
    kReceive,  // from the peer to `into`
    kReduce,   // `into` = `from` (op) the peer's data
    kCopy,     // `into` = `from`
    kCombine,  // `into` = `from` (op) `with`
  };
  static constexpr int kNone = -1;

  Kind kind = Kind::kSend;
  int peer = 0;  // rank of the group
  Place from;
  Place with;
  Place into;
  size_t bytes = 0;
  int after = kNone;             // the move that writes what this one reads, at least in part
  int overwrites_after = kNone;  // the move that reads what this one overwrites
  int starts_after = kNone;      // begins when that move is finished
  bool is_barrier = false;       // begins when all earlier moves are finished
  bool averages = false;         // kAvg: the last reduction of its bytes, which divides them
  bool peer_first = false;       // kReduce: the peer's data is the first operand

  // Progress.
  size_t moved = 0;
  bool finished = false;
  bool feeds_another = false;  // another move reads what this one writes
  int next = kNone;            // the next move of its lane
  uint32_t step = 0;           // its index in its lane
};

// Moves that run one after another: to one peer, from one peer, or local ones.
struct Lane {
  enum class Direction : uint8_t { kLocal, kOut, kIn };
  Direction direction = Direction::kLocal;
  int peer = 0;
  int head = Move::kNone;  // the first unfinished move
  int tail = Move::kNone;
  size_t bytes = 0;        // of all its moves
  size_t frame_bytes = 0;  // bytes of the frame on its way out
  size_t bytes_done = 0;   // bytes sent, or taken here
  size_t credit = 0;       // bytes that may be sent by the last credit; never less than a window
  uint64_t loan = 0;       // loan under way instead of a frame with payload; 0: none
  bool loans_refused = false;  // the receiver could not read a loan: no more are made
};

// One rank's work in one operation, as data: made by a pure function (collectives.h), checked as
// data, and carried out by the Runner.
class MovePlan {
 public:
  // Clears everything, but keeps allocated memory.
  void clear(int ranks);
  // Appends a move; returns its index.
  int add(const Move& move);
  // Sets the bytes of Area::kScratch.
  void need_scratch(size_t bytes) { scratch_ = bytes; }

  size_t scratch() const { return scratch_; }
  const std::vector<Move>& moves() const { return moves_; }
  Move& move(int index) { return moves_[static_cast<size_t>(index)]; }
  std::vector<Lane>& lanes() { return lanes_; }
  // Whether the first `index` moves are finished.
  bool finished_before(int index);
  void finish(Lane& lane);
  bool finished() const { return unfinished_ == 0; }

 private:
  Lane& lane_of(const Move& move);

  std::vector<Move> moves_;
  std::vector<Lane> lanes_;
  std::vector<int> lane_by_peer_;  // out and in for each rank, then the local lane
  size_t scratch_ = 0;
  size_t unfinished_ = 0;
  size_t finished_prefix_ = 0;
};

}  // namespace lockstep::comm
