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

namespace lockstep::comm {

class Operation;
class OperationPool;

// The ranks of one communicator.
struct Group {
  std::vector<int> ranks;  // world rank of each rank of the group
  int rank = 0;            // this process's rank in the group
  HostMap hosts;
  uint64_t id = 0;  // 0: the world
  // Sequence numbers that were issued; guarded by Core.
  uint64_t issued = 0;
  std::vector<uint64_t> sends;  // by rank of the group
  std::vector<uint64_t> receives;
  // The collective under way; for the driver only.
  const Operation* running = nullptr;
  std::atomic<uint64_t> entered{0};
  std::atomic<uint64_t> completed{0};
  std::atomic<int> board_place{-1};  // its place on the CollectiveBoard
};

// An operation's scratch memory, aligned like frames.
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

// One operation, from the call to its end. The thread that waits for it owns it. One thread drives
// it, and does not touch it after it is finished. Operations are reused and keep their allocations,
// except for large scratch memory, which goes back to its pool.
class Operation {
 public:
  // Arguments of a new run; `input` and `output` are those of the algorithm.
  struct Start {
    std::shared_ptr<Group> group;
    Task task;  // its counts are only read by begin()
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    Duration limit{};  // longest silence
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
  // For the owner, who must see it done by this call before destroying the operation.
  Status wait(Duration timeout) const;
  // Marks that a program is blocked in the operation until it is done.
  void block() const { blocked_.fetch_add(1, std::memory_order_relaxed); }
  bool is_blocked_on() const { return blocked_.load(std::memory_order_relaxed) > 0; }

  std::unique_ptr<Operation> next;      // the next operation of the same Work
  std::shared_ptr<OperationPool> home;  // the pool it returns to; null: none

  FrameHeader header;  // as in its frames, except for what differs by step
  bool receives = false;
  int other_side = 0;  // peer of a send or receive: rank of the group

  // For the driver.
  bool waiting = false;  // nothing has moved since waiting_since
  TimePoint waiting_since{};
  TimePoint blocked_since{};  // if after waiting_since: when a program was found blocked in it
  AwaitedRanks waits_for;
  int current_peer = -1;  // the world rank whose frame is being moved

 private:
  friend class OperationPool;

  std::shared_ptr<Group> group_;
  MovePlan plan_;
  std::array<std::byte*, 3> bases_{};  // by Area
  Scratch scratch_;
  Duration limit_{};

  std::atomic<bool> done_{false};
  mutable std::atomic<int> blocked_{0};
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  Status status_;
};

// Unused operations, and large scratch memory of finished ones. Thread-safe.
class OperationPool : public std::enable_shared_from_this<OperationPool> {
 public:
  // Most scratch memory that an operation keeps for itself.
  static constexpr size_t kOwnScratchMax = size_t{64} << 10;
  // Most scratch memory that the pool keeps in total. Concurrent operations that fit in it find
  // their memory again. The smallest is evicted first.
  static constexpr size_t kKeptScratchMax = size_t{256} << 20;

  std::unique_ptr<Operation> take();
  static void give_back(std::unique_ptr<Operation> operation);
  // Returns the smallest that is large enough, or a new one.
  Scratch take_scratch(size_t bytes);

 private:
  void keep(Scratch scratch);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Operation>> free_;
  std::multimap<size_t, Scratch> scratch_;  // by size
  size_t kept_bytes_ = 0;                   // of scratch_
};

}  // namespace lockstep::comm
