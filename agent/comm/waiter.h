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

// How the thread that carries out an operation waits when nothing moves: first it looks again for
// a moment (shared memory alone, as long as that pays off), then it sleeps, in a futex if all that
// it waits for is in shared memory, else in poll.
class Waiter {
 public:
  // `region` may be null; `local_rank` is this rank's place in it.
  static Result<std::unique_ptr<Waiter>> create(std::shared_ptr<ShmRegion> region, int local_rank);

  // Called while nothing moves, between two tries. Returns at once at first, then sleeps for at
  // most `timeout`. May wake for no reason.
  void pause(const std::vector<Interest>& interests, Duration timeout);
  // Something moved, or the operation is over.
  void moved();

  // Ends the sleep that there is, or that is about to begin. From any thread.
  void wake();

 private:
  Waiter(std::shared_ptr<ShmRegion> region, int local_rank, UniqueFd event)
      : region_(std::move(region)), local_rank_(local_rank), event_(std::move(event)) {}
  bool spin();
  void sleep_in_poll(const std::vector<Interest>& interests, Duration timeout);

  std::shared_ptr<ShmRegion> region_;
  int local_rank_;
  UniqueFd event_;

  enum class State { kRunning, kSpinning, kLyingDown, kSlept };
  State state_ = State::kRunning;
  TimePoint began_{};  // of this wait
  Duration spin_budget_ = std::chrono::microseconds(20);
  uint32_t bell_seen_ = 0;
};

}  // namespace lockstep
