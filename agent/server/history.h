#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "agent/server/messages.h"
#include "agent/server/unit_state.h"

namespace lockstep::server {

// One step of a server's history. Replayed one after another on parameters that begin the same, the
// puts, updates and expiries give every pull the same bits. Each entry of a unit's log is one
// event: an entry that changes no parameter yet (a push that waits for its step or is late, other
// workers) is kOther.
struct HistoryEvent {
  enum class Kind : uint8_t { kPut, kPull, kUpdate, kExpiry, kOther };
  Kind kind = Kind::kPull;
  UnitId unit;
  uint64_t view = 0;      // number
  uint64_t sequence = 0;  // entries of the unit's log, including this one
  uint64_t now = 0;       // UnitClock::now(), before an update
  // Put, pull: by which worker, at which of its clocks; the clock of the slowest worker then.
  // Update of one worker's push: its clock.
  uint32_t worker = 0;
  uint64_t clock = 0;
  uint64_t slowest = 0;
  std::span<const uint64_t> keys;  // pull, expiry
  std::span<const float> values;   // put, pull
  // Update: the workers whose gradients are added up, in this order.
  std::span<const uint32_t> workers;
  std::span<const Gradient> gradients;
  double learning_rate = 0;
};

// Takes a server's events in their order, on its thread: also those of the units of which it is a
// copy. Spans are valid during the call.
using HistoryRecorder = std::function<void(const HistoryEvent&)>;

}  // namespace lockstep::server
