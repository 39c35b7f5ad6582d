#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "agent/comm/collectives.h"
#include "agent/comm/communicator.h"
#include "agent/comm/frame.h"
#include "agent/comm/move_plan.h"
#include "common/api/collective_board.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep {

class Operation;
class OperationPool;

// The ranks of one communicator, by their rank in it.
struct Group {
  std::vector<int> ranks;  // of the world
  int rank = 0;            // this process's place
  HostMap hosts;
  uint64_t id = 0;  // 0: the world
  // Numbers given out; guarded by Core.
  uint64_t issued = 0;
  std::vector<uint64_t> sends;  // by rank of the group
  std::vector<uint64_t> receives;
  // The collective under way; the driving thread's.
  const Operation* running = nullptr;
  std::atomic<uint64_t> entered{0};
  std::atomic<uint64_t> completed{0};
  std::atomic<int> board_place{-1};  // CollectiveBoard's
};

// Memory of an operation's own, whose bytes begin aligned as frames do.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(size_t bytes);
  size_t bytes() const { return bytes_; }
  std::byte* data() const { return reinterpret_cast<std::byte*>(lines_.get()); }

 private:
  struct alignas(kFrameAlign) Line {
    std::byte bytes[kFrameAlign];
  };
  std::unique_ptr<Line[]> lines_;
  size_t bytes_ = 0;
};

// One operation, from the call to its end. Owned by whoever waits for it, and driven by one thread,
// which does not touch it any more once it is finished. Reused: what it has allocated stays with
// it, but for large memory, which goes back to its pool.
class Operation {
 public:
  // A new beginning; `input` and `output` as the algorithm sees them.
  struct Start {
    std::shared_ptr<Group> group;
    Task task;  // its counts are read here alone
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    Duration limit{};  // of silence
    std::optional<CallPart> part;
  };
  void begin(const Start& start);

  const std::shared_ptr<Group>& group() const { return group_; }
  bool is_collective() const { return header.kind != Collective::kSend; }
  MovePlan& plan() { return plan_; }
  std::byte* at(Place place) const { return bases_[static_cast<size_t>(place.area)] + place.at; }
  int world_rank(int group_rank) const { return group_->ranks[static_cast<size_t>(group_rank)]; }
  Duration limit() const { return limit_; }

  void finish(Status status);
  bool done() const { return done_.load(std::memory_order_acquire); }
  // The owner's, and to be called with success before the end of its life.
  Status wait(Duration timeout) const;
  // Somebody's program stands in it until it is done.
  void stand() const { standing_.fetch_add(1, std::memory_order_relaxed); }
  bool is_stood_in() const { return standing_.load(std::memory_order_relaxed) > 0; }

  std::unique_ptr<Operation> next;      // of those that one Work waits for
  std::shared_ptr<OperationPool> home;  // where it goes when that is over; null: nowhere

  FrameHeader header;  // as in its frames, but for what differs from step to step
  bool receives = false;
  int other_side = 0;  // of a send or receive: rank of the group

  // The driving thread's.
  bool waiting = false;  // nothing has moved since
  TimePoint waiting_since{};
  AwaitedRanks waits_for;
  int in_hand = -1;  // the rank of the world whose frame is being moved

 private:
  friend class OperationPool;

  std::shared_ptr<Group> group_;
  MovePlan plan_;
  std::array<std::byte*, 3> bases_{};  // by Area
  Scratch scratch_;
  Duration limit_{};

  std::atomic<bool> done_{false};
  mutable std::atomic<int> standing_{0};
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  Status status_;
};

// Operations that are not in use, and large memory that was theirs. Thread-safe.
class OperationPool : public std::enable_shared_from_this<OperationPool> {
 public:
  // What an operation keeps to itself.
  static constexpr size_t kOwnScratchMax = size_t{64} << 10;
  // Of the rest, what is kept in all: as many operations at once as this has room for find their
  // memory again. What is smallest goes first.
  static constexpr size_t kKeptScratchMax = size_t{256} << 20;

  std::unique_ptr<Operation> take();
  static void give_back(std::unique_ptr<Operation> operation);
  // The smallest that is large enough, or new.
  Scratch take_scratch(size_t bytes);
  size_t kept_scratch_bytes() const;

 private:
  void keep(Scratch scratch);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Operation>> free_;
  std::multimap<size_t, Scratch> scratch_;  // by size
  size_t kept_bytes_ = 0;                   // of scratch_
};

}  // namespace lockstep
