#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/comm_limits.h"
#include "agent/comm/control.h"
#include "agent/comm/fault.h"
#include "agent/comm/link.h"
#include "agent/comm/operation.h"
#include "agent/comm/port.h"
#include "agent/comm/runner.h"
#include "agent/comm/shm.h"
#include "agent/comm/waiter.h"
#include "common/api/collective_board.h"

namespace lockstep::comm {

// State that the communicators of one world in one process share: the links, the control
// connections, the fault, and the operations under way. One thread at a time, the driver, carries
// out all of them. It is a caller's thread that waits for a result anyway, if nobody drives yet.
// Otherwise it is the core's own thread, which starts with the first operation that needs it. In
// each group one collective is under way at a time.
class Core {
 public:
  struct Options {
    int rank = 0;
    uint64_t round = 0;
    Duration operation_limit{};
    std::vector<std::unique_ptr<Link>> links;  // by rank of the world; this rank's own is null
    std::vector<UniqueFd> controls;            // likewise
    std::vector<std::unique_ptr<ControlWire>> control_wires;  // as Control::Options::wires
    std::vector<int> nodes;                                   // host of each rank of the world
    std::shared_ptr<ShmRegion> region;                        // null: no shared memory
    int local_rank = 0;                                       // place in the region
    int cores = 0;  // for the ranks of its host; 0: the machine's
    CommLimits limits;
    CollectiveBoard* board = nullptr;  // where this rank reports its progress; null: nowhere
    std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
  };
  static Result<std::shared_ptr<Core>> create(Options options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  int rank() const { return options_.rank; }
  int world_size() const { return static_cast<int>(options_.links.size()); }
  std::shared_ptr<Group> world() const { return world_; }
  // Makes a group of these ranks of the world; `place` is this rank's rank in it. Its id is the
  // same on every rank that has made equally many groups of these ranks before.
  std::shared_ptr<Group> make_group(std::vector<int> ranks, int place);
  // Takes the group off the board.
  void close_group(Group& group);

  Status run(const Operation::Start& start);
  // Issues all of them together.
  Work start(const std::vector<Operation::Start>& starts);

  // Breaks the communicator here and, unless it is broken already, on all ranks.
  void fail(const Fault& fault);
  const FaultBox& fault() const { return fault_; }

  Link& link(int world_rank) const { return *options_.links[static_cast<size_t>(world_rank)]; }
  // Rings the rank's bell over its control connection.
  void ring(int world_rank) { control_->ring(world_rank); }
  Traffic traffic() const;
  Duration operation_limit() const { return operation_limit_.load(); }

  // For operations that run outside the core, reported by one thread per group: `number`
  // collectives of the group have begun, `number` are over, and these bytes were moved.
  void enter_external(Group& group, Collective kind, uint64_t number);
  void complete_external(Group& group, uint64_t number);
  void add_traffic(const Traffic& moved);

  // A limit that is not positive restores that of the options.
  void set_operation_limit(Duration limit) {
    operation_limit_.store(limit > Duration::zero() ? limit : options_.operation_limit);
  }

 private:
  explicit Core(Options options);
  TimePoint now() const { return options_.clock->now(); }
  int ranks_of_node() const;
  // Returns the state for the heartbeats, and refreshes the sign of life on the board.
  Control::Pulse pulse() const;
  void admit(Operation& operation);
  // With mutex_ held: makes sure that a thread drives.
  void need_driver();
  // With mutex_ held: gives the group a place on the board, if one is free.
  void assign_board_slot(Group& group);
  void work();

  // For the driver. drive() runs until that operation is done or, without one, until none is under
  // way.
  void drive(const Operation* until);
  void adopt();
  bool step_all();
  bool may_run(Operation& operation);
  void complete(Operation& operation);
  void fail_all();
  bool buffer_blocking_frames();
  void wait();
  // The driver's findings at one point in time: who has waited for how long.
  struct WaitSummary {
    TimePoint at{};
    Duration since_last_check{};                 // since the previous summary
    Duration next_check_in{};                    // until the next summary, at most
    const Operation* longest_blocked = nullptr;  // the longest wait worth reporting
    const Operation* silent = nullptr;           // its time limit has passed
  };
  WaitSummary summarize_waits();
  void summarize_wait(Operation& operation, WaitSummary& summary) const;
  bool is_blocked_on(const Operation& operation) const;
  void report_wait(const Operation* blocked);
  bool waits_for_departed_rank(int* rank) const;
  Error error_of(const Operation& operation) const;
  void blame(const Operation& operation, const Error& error);
  void blame_silence(const Operation& operation, Duration silent);
  int end_of_wait_chain(const AwaitedRanks& from) const;

  Options options_;
  std::shared_ptr<Group> world_;
  FaultBox fault_;
  std::atomic<Duration> operation_limit_;
  std::unique_ptr<Waiter> waiter_;
  std::vector<Port> ports_;  // by rank of the world
  Runner runner_;
  std::shared_ptr<OperationPool> pool_ = std::make_shared<OperationPool>();

  // For the driver.
  std::vector<Operation*> active_;  // in the order of the calls
  std::vector<WaitReason> wait_reasons_;
  TimePoint checked_at_{};  // by wait(), last time
  bool rechecked_after_goodbye_ = false;
  bool paused_ = false;
  const Operation* reported_ = nullptr;  // its wait has been reported
  AwaitedRanks reported_ranks_;          // the ranks it was reported to wait for

  std::atomic<uint64_t> external_bytes_sent_{0};
  std::atomic<uint64_t> external_bytes_received_{0};
  std::atomic<uint64_t> external_bytes_sent_off_host_{0};

  mutable std::mutex pulse_mutex_;
  AwaitedRanks pulse_ranks_;  // copy of reported_ranks_ for the heartbeats

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Operation*> submitted_;  // issued, not yet adopted by the driver
  std::atomic<bool> has_submitted_{false};
  std::atomic<bool> asleep_{false};  // the driver is about to wait, or waits
  std::atomic<bool> driving_{false};
  bool left_over_ = false;          // the last driver left operations under way
  std::atomic<int> unfinished_{0};  // issued, and not yet reported as done to their owners
  bool stopping_ = false;
  std::map<std::vector<int>, uint64_t> groups_made_;
  std::vector<Group*> groups_on_board_;  // those with a place on the board
  std::thread worker_;
  std::unique_ptr<Control> control_;  // last: its thread uses the rest
};

}  // namespace lockstep::comm
