#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/comm/control.h"
#include "agent/comm/fault.h"
#include "agent/comm/frame.h"
#include "agent/comm/link.h"
#include "agent/comm/shm.h"
#include "agent/comm/waiter.h"

namespace lockstep {

// The ranks of one communicator, by their rank in it.
struct Group {
  std::vector<int> ranks;  // of the world
  int rank = 0;            // this process's place
  uint64_t id = 0;         // 0: the world
  uint64_t issued = 0;     // collectives asked for; guarded by Core
  std::atomic<uint64_t> entered{0};
  std::atomic<uint64_t> completed{0};
};

// One collective operation, from the call to its end.
struct Operation {
  std::shared_ptr<Group> group;
  FrameHeader header;  // kind, type, reduction, count, root, and its number
  CommBuffer buffer;   // all_reduce, broadcast
  std::span<const std::byte> mine;
  std::span<std::byte> all;  // all_gather
  Duration limit{};          // of silence

  void finish(Status status);
  bool done() const;
  Status wait(Duration timeout) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  bool done_ = false;
  Status status_;
};

// What the communicators of one world in one process share: the links, the control connections, the
// fault, and the order of operations. Operations run one at a time, in the order in which they were
// admitted, on the caller's thread where it waits for the result anyway and nothing is under way,
// else on a thread of the core's own, which starts with the first of them.
class Core {
 public:
  struct Options {
    int rank = 0;
    uint64_t round = 0;
    Duration operation_limit{};
    std::vector<std::unique_ptr<Link>> links;  // by rank of the world; this rank's own is null
    std::vector<UniqueFd> controls;            // likewise
    std::shared_ptr<ShmRegion> region;         // null: none
    int local_rank = 0;                        // place in it
  };
  static Result<std::shared_ptr<Core>> create(Options options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  int rank() const { return options_.rank; }
  int world_size() const { return static_cast<int>(options_.links.size()); }
  std::shared_ptr<Group> world() const { return world_; }

  void start(std::shared_ptr<Operation> operation);
  Status run(std::shared_ptr<Operation> operation);

  // Breaks the communicator here and, unless it is broken already, on all ranks.
  void fail(const Fault& fault);
  const FaultBox& fault() const { return fault_; }
  // The fault as the error of an operation.
  Error error_of(const Operation& operation) const;

  Link& link(int world_rank) const { return *options_.links[static_cast<size_t>(world_rank)]; }
  Waiter& waiter() { return *waiter_; }
  // Null in a world of one.
  const Control* control() const { return control_.get(); }
  // Rings the rank over its control connection.
  void ring(int world_rank) { control_->ring(world_rank); }
  Traffic traffic() const { return {bytes_sent_.load(), bytes_received_.load()}; }
  void count_sent(uint64_t bytes) { bytes_sent_ += bytes; }
  void count_received(uint64_t bytes) { bytes_received_ += bytes; }
  Duration operation_limit() const { return options_.operation_limit; }

 private:
  explicit Core(Options options);
  void admit(Operation& operation);
  void work();
  Status execute(Operation& operation);

  Options options_;
  std::shared_ptr<Group> world_;
  FaultBox fault_;
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> bytes_received_{0};
  std::unique_ptr<Waiter> waiter_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> queue_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread worker_;
  std::unique_ptr<Control> control_;  // last: its thread uses the rest
};

}  // namespace lockstep
