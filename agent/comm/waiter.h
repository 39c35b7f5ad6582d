#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "agent/comm/link.h"
#include "agent/comm/shm.h"
#include "agent/comm/socket.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep {

// What an operation waits for on one link.
struct Interest {
  Link* link = nullptr;
  bool input = false;  // else room for output
  size_t missing = 0;  // bytes that are certain to come, for input
};

// Whether so many ranks of a host have fewer cores, of those that they may use; 0: all of the
// machine's.
bool shares_cores(int local_ranks, int cores);

// How the thread that carries out an operation waits when nothing moves: first it looks again for
// a moment, as long as that pays off, then it sleeps, in a futex if all that it waits for is in
// shared memory, else in poll. Where a node has more ranks than cores it sleeps at once: the one
// that is waited for may need this one's core. Other nodes on the machine are not seen; there a
// look that never pays off costs a microsecond a sleep, and 50 each 16th.
class Waiter {
 public:
  struct Options {
    std::shared_ptr<ShmRegion> region;  // may be null
    int local_rank = 0;                 // this rank's place in it
    int local_ranks = 1;                // of this node, in memory or not
    int cores = 0;                      // that they may use; 0: all of the machine's
  };
  static Result<std::unique_ptr<Waiter>> create(Options options);

  // Called while nothing moves, between two tries. Returns at once at first, then sleeps for at
  // most `timeout`. May wake for no reason.
  void pause(const std::vector<Interest>& interests, Duration timeout);
  // Something moved, or the operation is over.
  void moved();

  // Ends the sleep that there is, or that is about to begin. From any thread.
  void wake();

 private:
  Waiter(Options options, bool shares_cores, UniqueFd event)
      : region_(std::move(options.region)),
        local_rank_(options.local_rank),
        shares_cores_(shares_cores),
        event_(std::move(event)) {}
  bool spin();
  void sleep_in_poll(const std::vector<Interest>& interests, Duration timeout);

  std::shared_ptr<ShmRegion> region_;
  int local_rank_;
  bool shares_cores_;
  UniqueFd event_;

  enum class State { kRunning, kSpinning, kLyingDown, kSlept };
  State state_ = State::kRunning;
  TimePoint began_{};  // of this wait
  Duration spin_budget_ = std::chrono::microseconds(20);
  uint32_t sleeps_ = 0;
  Sleep lies_ = Sleep::kAwake;  // how, where state_ is kLyingDown
  uint32_t bell_seen_ = 0;
};

}  // namespace lockstep
