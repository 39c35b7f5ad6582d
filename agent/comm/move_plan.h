#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// Where bytes lie: in the caller's input or output, or in memory of the operation's own.
enum class Area : uint8_t { kInput, kOutput, kScratch };
struct Place {
  Area area = Area::kOutput;
  size_t at = 0;  // bytes
};

// One thing that a rank does in an operation: so many bytes that travel, or that change their place
// here. It goes on byte by byte as far as the moves go that it depends on; so hops overlap.
struct Move {
  enum class Kind : uint8_t {
    kSend,     // `from` to the peer
    kReceive,  // from the peer to `into`
    kReduce,   // `into` = `from` (op) what comes from the peer
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
  int after = kNone;        // the move that writes (some of) what this one reads
  int behind = kNone;       // the move that reads what this one overwrites
  int awaits = kNone;       // begins when that move is finished
  bool fenced = false;      // begins when all moves before it are finished
  bool averages = false;    // of a kAvg: the last reduction of its bytes, which divides them
  bool peer_first = false;  // of a kReduce: what comes is the first operand

  // As it is carried out.
  size_t moved = 0;
  bool finished = false;
  bool goes_on = false;  // another one reads what this one writes
  int next = kNone;      // move of its lane
  uint32_t step = 0;     // its place in its lane
};

// Moves that follow one another: those to one peer, those from one peer, those that stay here.
struct Lane {
  enum class Way : uint8_t { kHere, kOut, kIn };
  Way way = Way::kHere;
  int peer = 0;
  int head = Move::kNone;  // the first that isn't finished
  int tail = Move::kNone;
  size_t bytes = 0;         // of all its moves
  size_t going = 0;         // of the frame on its way out
  size_t gone = 0;          // out, or taken here
  size_t allowed = 0;       // that may be gone, by the receiver's last word; a window without any
  uint64_t loan = 0;        // under way instead of a frame with its payload; 0: none
  bool is_refused = false;  // the receiver could not read one: nothing more is lent
};

// What one rank has to do in one operation: data, made by a pure function (collectives.h), checked
// as data, and carried out by the Runner.
class MovePlan {
 public:
  // Forgets everything but its memory.
  void clear(int ranks);
  // Appends; returns the move's index.
  int add(const Move& move);
  // Bytes of Area::kScratch.
  void need_scratch(size_t bytes) { scratch_ = bytes; }

  size_t scratch() const { return scratch_; }
  const std::vector<Move>& moves() const { return moves_; }
  Move& move(int index) { return moves_[static_cast<size_t>(index)]; }
  std::vector<Lane>& lanes() { return lanes_; }
  // Whether the first `index` moves are finished.
  bool finished_before(int index);
  void finish(Lane& lane);
  bool finished() const { return open_ == 0; }

 private:
  Lane& lane_of(const Move& move);

  std::vector<Move> moves_;
  std::vector<Lane> lanes_;
  std::vector<int> lane_by_peer_;  // 2 for each rank (out, in), then that of kHere
  size_t scratch_ = 0;
  size_t open_ = 0;
  size_t finished_prefix_ = 0;
};

}  // namespace lockstep
