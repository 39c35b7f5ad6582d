#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "agent/comm/link.h"
#include "agent/comm/shm.h"
#include "agent/comm/socket.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::comm {

// An operation's reason to wait on one link.
struct WaitReason {
  Link* link = nullptr;
  bool input = false;  // false: waits for room for output
  size_t missing = 0;  // input that is certain to come, in bytes
};

// Whether these ranks of a host are more than the cores that they may use; 0: all of the machine's.
bool shares_cores(int local_ranks, int cores);

// Makes the thread that carries out operations wait while nothing moves. It first spins for a
// moment, as long as that pays off. Then it sleeps: in a futex if everything it waits for is in
// shared memory, else in poll. If a node has more ranks than cores it sleeps immediately, because
// the rank it waits for may need this core. Other nodes on the machine are invisible to it. There,
// spinning that never pays off costs a microsecond per sleep, and 50 for every 16th.
class Waiter {
 public:
  struct Options {
    std::shared_ptr<ShmRegion> region;  // may be null
    int local_rank = 0;                 // this rank's place in it
    int local_ranks = 1;                // of this node, sharing memory or not
    int cores = 0;                      // that these ranks may use; 0: all of the machine's
  };
  static Result<std::unique_ptr<Waiter>> create(Options options);

  // Called while nothing moves, between two tries. At first returns immediately, then sleeps for at
  // most `timeout`. May wake for no reason.
  void pause(const std::vector<WaitReason>& reasons, Duration timeout);
  // Call when something moved, or when the operation is over.
  void moved();

  // Ends the current sleep, or one that is about to begin. From any thread.
  void wake();

 private:
  Waiter(Options options, bool shares_cores, UniqueFd event)
      : region_(std::move(options.region)),
        local_rank_(options.local_rank),
        shares_cores_(shares_cores),
        event_(std::move(event)) {}
  bool spin();
  void sleep_in_poll(const std::vector<WaitReason>& reasons, Duration timeout);

  std::shared_ptr<ShmRegion> region_;
  int local_rank_;
  bool shares_cores_;
  UniqueFd event_;

  enum class State { kRunning, kSpinning, kAboutToSleep, kSlept };
  State state_ = State::kRunning;
  TimePoint began_{};  // of this wait
  Duration spin_budget_ = std::chrono::microseconds(20);
  uint32_t sleeps_ = 0;
  Sleep sleep_kind_ = Sleep::kAwake;  // how it sleeps, if state_ is kAboutToSleep
  uint32_t bell_seen_ = 0;
};

}  // namespace lockstep::comm
