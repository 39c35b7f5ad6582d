#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/server/chain_inbox.h"
#include "agent/server/chain_link.h"
#include "agent/server/history.h"
#include "agent/server/messages.h"
#include "agent/server/promises.h"
#include "agent/server/reply_memory.h"
#include "agent/server/unit_call.h"
#include "agent/server/unit_clock.h"
#include "agent/server/unit_state.h"

namespace lockstep::server {

// A dense range, or the rows of one table and slot: their parameters, and the pushes and pulls that
// wait for their turn (UnitClock). The waiting calls are bounded by the windows of remote calls
// (agent/rpc/limits.h). Single-threaded.
//
// A unit has a log. Its entries are the pushes in the order in which they are taken, puts, expiries
// of rows, and changes of the workers. Two units that begin the same and go through the same log
// are the same, bit by bit, but for what pulls leave: rows that nobody pushed, and frequencies.
// The primary makes the log, and each server of the chain passes it on to the next one. Whatever a
// worker is told waits until the whole chain has the entries that it tells of.
class Unit {
 public:
  struct Options {
    UnitId id;
    std::string name;  // "w, elements 0 to 4096"
    std::unique_ptr<UnitState> state;
    Consistency consistency;
    std::vector<uint32_t> workers;
    std::shared_ptr<ReplyMemory> replies;
    HistoryRecorder recorder;  // may be empty
    // Runs a task on the unit's thread, later; from any thread.
    std::function<void(std::function<void()>)> post;
    bool is_whole = true;  // false: it joins, and is filled by the server before it
  };
  explicit Unit(Options options);

  uint64_t floats() const { return state_->floats(); }

  // The place of this server in the unit's chain.
  struct Place {
    Fence fence;
    bool is_primary = true;
    std::optional<rpc::Peer> next;
    bool next_joins = false;
  };
  // Goes on in a later view. Calls of workers that wait survive at a primary.
  void set_place(const Place& place);
  bool is_primary() const { return place_.is_primary; }
  // Whether the state is complete.
  bool is_whole() const { return is_whole_; }
  // Returns the clock of the next push of a worker of the view.
  uint64_t clock_of(uint32_t worker) const { return clock_.clock_of(worker); }

  // These take the call of a worker now, later, or refuse it. Only at a primary.
  void push(UnitCall call);
  void pull(UnitCall call);
  // Only before the first push; kConflict afterwards.
  void put(UnitCall call);
  // Takes a message of the server before this one, once those before it are here. Only at
  // a copy.
  void receive(CopyMessage message);

  // Continues with these workers. Calls of others that wait are refused, gradients of others that
  // have not been added up are dropped. A copy waits for the primary's entry.
  void set_workers(std::span<const uint32_t> workers);
  // Takes the calls that need not wait any more.
  void settle();
  // Refuses calls that wait for their turn.
  void fail_waiting(const Error& error);
  // The last call: refuses everything, and forgets all requests.
  void end(const Error& error);

  // Goes on after `first` steps of earlier rounds. Only before the first push.
  void begin_at(uint64_t first);
  UnitState& state() { return *state_; }

  struct Report {
    std::string name;
    uint64_t now = 0;
    UnitClock::WorkerClock slowest;
    uint64_t waiting = 0;  // calls
    UnitState::Size size;
    bool is_primary = true;
    uint64_t sequence = 0;    // entries of the log
    bool is_filling = false;  // the next server of the chain, which joins
  };
  Report report() const;

 private:
  enum class Fill : uint8_t { kNone, kWaits, kGoesOn, kDone };

  // Takes the call if it may; returns false if it waits.
  bool try_push(const SharedCall& call);
  bool try_pull(const SharedCall& call);
  void read(const UnitCall& call, const EncodedFloats& what, std::span<std::byte> reply);
  void take_push(const SharedCall& call);
  void take_late_push(const SharedCall& call);
  using Waiting = std::list<SharedCall>;
  void drop_unwanted(Waiting& waiting);
  // Returns whether a call was taken.
  bool settle(Waiting& waiting, bool (Unit::*take)(const SharedCall&));
  void sweep();
  void promise_answer(const SharedCall& call, bool is_late);
  ReplyHead reply_head(uint32_t worker) const;
  void refuse(UnitCall& call, const Error& error);
  void record(const UnitCall& call, HistoryEvent event);
  void record_expiry(std::span<const uint64_t> keys);
  // Records the last entry of the log, which changes no parameter.
  void record_other();

  // The log (unit_log.cc). These change the state as an entry says, at a primary and at a copy.
  void apply_push(const SharedCall& call);
  void apply_workers(std::span<const uint32_t> workers);
  void finish_step();
  void update(std::span<const SharedCall> pushes);
  // Counts an entry, and passes it on.
  void log(CopyHead head, std::vector<rpc::Bytes> body, std::shared_ptr<const void> owner);
  void log_push(const SharedCall& call);
  void pass_on(CopyHead head, std::vector<rpc::Bytes> body, std::shared_ptr<const void> owner);
  // The last entry that the whole chain has.
  uint64_t acknowledged();
  void promise(uint64_t sequence, Promises::Answer answer);
  void on_progress();
  void take_copy(const CopyMessage& message);
  Status apply(const CopyMessage& message);
  Status apply_copied_push(const CopyMessage& message);

  // Filling a server that joins, and being filled (unit_fill.cc).
  bool is_filling() const;
  void try_begin_fill();
  void fill_more();
  Status begin_as(const CopyMessage& message);
  Status take_part(const CopyMessage& message);

  Options options_;
  std::unique_ptr<UnitState> state_;
  UnitClock clock_;
  std::vector<uint32_t> workers_;
  std::vector<SharedCall> pushed_;  // of the synchronous step, by worker
  Waiting waiting_pushes_;
  Waiting waiting_pulls_;
  std::vector<float> read_;  // scratch

  Place place_;
  bool is_whole_ = true;
  uint64_t sequence_ = 0;
  uint64_t acknowledged_ = 0;
  Promises promises_;
  ChainInbox inbox_;
  std::shared_ptr<ChainLink> link_;  // null: there never was a next server
  Fill fill_ = Fill::kNone;
  uint32_t filled_parts_ = 0;
  uint64_t filled_at_ = 0;  // the last entry that was acknowledged without the server that joined
};

}  // namespace lockstep::server
