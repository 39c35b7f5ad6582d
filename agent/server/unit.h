#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/rpc/server.h"
#include "agent/server/history.h"
#include "agent/server/messages.h"
#include "agent/server/reply_memory.h"
#include "agent/server/unit_clock.h"
#include "agent/server/unit_state.h"

namespace lockstep::server {

// A call of a worker to a unit, checked but for its clock. The request, or `decoded`, owns the
// memory of `values`.
struct UnitCall {
  rpc::Request request;
  CallHead head;
  KeyList keys;  // null for a range
  std::span<const float> values;
  std::vector<float> decoded;

  std::span<const uint64_t> key_span() const {
    return keys == nullptr ? std::span<const uint64_t>() : std::span<const uint64_t>(*keys);
  }
};

// A dense range, or the rows of one table that a server has: their parameters, and the pushes and
// pulls that wait for their turn (UnitClock). The waiting calls are bounded by the windows of
// remote calls (agent/rpc/limits.h). Single-threaded.
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
  };
  explicit Unit(Options options);

  uint64_t floats() const { return state_->floats(); }

  // These take the call now, later, or refuse it.
  void push(UnitCall call);
  void pull(UnitCall call);
  // Only before the first push; kConflict afterwards.
  void put(UnitCall call);

  // Continues with these workers. Calls of others that wait are refused, gradients of others that
  // have not been added up are dropped.
  void set_workers(std::span<const uint32_t> workers);
  // Takes the calls that need not wait any more.
  void settle();
  // Refuses what waits.
  void fail_waiting(const Error& error);

  // Goes on after `first` steps of earlier rounds. Only before the first push.
  void begin_at(uint64_t first);
  UnitState& state() { return *state_; }

  struct Report {
    std::string name;
    uint64_t now = 0;
    UnitClock::WorkerClock slowest;
    uint64_t waiting = 0;  // calls
    UnitState::Size size;
  };
  Report report() const;

 private:
  // Takes the call if it may; returns false if it waits.
  bool try_push(UnitCall& call);
  bool try_pull(UnitCall& call);
  void read(const UnitCall& call, const EncodedFloats& what, std::span<std::byte> reply);
  void take_push(UnitCall& call);
  void take_late_push(UnitCall& call);
  void drop_unwanted(std::list<UnitCall>& waiting);
  // Returns whether a call was taken.
  bool settle(std::list<UnitCall>& waiting, bool (Unit::*take)(UnitCall&));
  void update(std::span<UnitCall> pushes);
  void sweep();
  void answer(UnitCall& call, bool is_late);
  ReplyHead reply_head(uint32_t worker) const;
  void refuse(UnitCall& call, const Error& error);
  void record(const UnitCall& call, HistoryEvent event);

  Options options_;
  std::unique_ptr<UnitState> state_;
  UnitClock clock_;
  std::vector<UnitCall> pushed_;  // of the synchronous step, by worker
  std::list<UnitCall> waiting_pushes_;
  std::list<UnitCall> waiting_pulls_;
  std::vector<float> read_;  // scratch
};

}  // namespace lockstep::server
