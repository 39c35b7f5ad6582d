#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "agent/server/messages.h"
#include "common/base/result.h"

namespace lockstep::server {

enum class ConsistencyKind : uint8_t { kSynchronous, kAsynchronous, kBoundedStaleness };

// Says how old the parameters are that workers see.
struct Consistency {
  ConsistencyKind kind = ConsistencyKind::kSynchronous;
  // kBoundedStaleness: clocks that a worker may be ahead of the slowest.
  uint64_t staleness = 0;
  // kSynchronous: an update sums the gradients of the first workers - backup_workers that push.
  uint32_t backup_workers = 0;
};
// kInvalid for an option of another kind, or more backup workers than can be spared.
Status check_consistency(const Consistency& consistency, size_t workers);

// The vector clock of one unit: a dense range, or the rows of one table on one server. A worker's
// clock counts the pushes that the unit has taken from it, one for each step. It decides which
// pushes and pulls take place now, and which have to wait:
//
// - kSynchronous: step s is one update, when enough workers have pushed with clock s. A pull with
//   clock s waits until updates 0 to s - 1 are done. A push that comes after its step's update is
//   late: it counts for nothing.
// - kAsynchronous: nothing waits, but for the worker's own earlier pushes.
// - kBoundedStaleness: a pull or push with clock c waits until every worker has pushed with all
//   clocks below c - staleness, and the worker itself with all clocks below c. With staleness 0 a
//   pull sees all updates of earlier clocks.
//
// Sources: Chen et al., "Revisiting distributed synchronous SGD", 2016 (backup workers); Dean et
// al., "Large scale distributed deep networks", NIPS 2012 (asynchronous); Ho et al., "More
// effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013.
//
// Pure; single-threaded.
class UnitClock {
 public:
  // `first`: the clock of all workers, which have completed as many steps in earlier rounds.
  UnitClock(const Consistency& consistency, std::span<const uint32_t> workers, uint64_t first = 0);

  enum class Verdict { kNow, kWait, kLate };
  // kConflict if the rank is not a worker of the view, or has pushed with this clock before.
  Result<Verdict> judge_push(uint32_t worker, uint64_t clock) const;
  // Whether the worker's push with this clock was taken.
  bool has_pushed(uint32_t worker, uint64_t clock) const;
  // kConflict if the rank is not a worker of the view.
  Result<Verdict> judge_pull(uint32_t worker, uint64_t clock) const;
  // Whether a pull that waits does so for the worker itself, maybe among others.
  bool waits_for_itself(uint32_t worker, uint64_t clock) const;

  // The push takes place, or was late. Its verdict was not kWait.
  void take_push(uint32_t worker, uint64_t clock);
  // kSynchronous: whether enough workers have pushed for the next update; begins the next step.
  bool is_step_complete() const;
  void begin_next_step() { ++step_; }

  // Continues with these workers. New ones begin at slowest().clock.
  void set_workers(std::span<const uint32_t> workers);

  struct WorkerClock {
    uint32_t worker = 0;
    uint64_t clock = 0;
  };
  // The worker with the lowest clock; of several, the lowest rank.
  WorkerClock slowest() const;
  uint64_t clock_of(uint32_t worker) const;
  // The time of the unit, which never goes back: the highest clock of a worker or, if updates are
  // synchronous, their number.
  uint64_t now() const;
  // The whole state, for a copy.
  ParsedClock state() const;
  void set_state(const ParsedClock& state);
  bool is_synchronous() const { return consistency_.kind == ConsistencyKind::kSynchronous; }

 private:
  Status check_worker(uint32_t worker) const;
  bool is_within_bound(uint64_t clock) const;

  Consistency consistency_;
  std::map<uint32_t, uint64_t> clocks_;  // by worker
  uint64_t step_ = 0;                    // updates, if they are synchronous
  uint64_t highest_ = 0;                 // clock of a worker, also of one that has left
};

}  // namespace lockstep::server
