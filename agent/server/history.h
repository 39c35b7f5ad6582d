#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "agent/server/messages.h"
#include "agent/server/unit_state.h"

namespace lockstep::server {

// Names a unit within a view.
struct UnitId {
  UnitKind kind = UnitKind::kRange;
  uint32_t index = 0;  // CallHead::unit

  auto operator<=>(const UnitId&) const = default;
};

// One step of a server's history. Replayed one after another on parameters that begin the same, the
// puts, updates and expiries give every pull the same bits.
struct HistoryEvent {
  enum class Kind : uint8_t { kPut, kPull, kUpdate, kExpiry };
  Kind kind = Kind::kPull;
  UnitId unit;
  uint64_t now = 0;  // UnitClock::now(), before an update
  // Put, pull: by which worker, at which of its clocks; the clock of the slowest worker then.
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

// Takes a server's events in their order, on its thread. Spans are valid during the call.
using HistoryRecorder = std::function<void(const HistoryEvent&)>;

}  // namespace lockstep::server
