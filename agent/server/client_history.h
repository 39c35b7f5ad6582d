#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "agent/server/messages.h"

namespace lockstep::server {

// An answer that a worker got about one unit: the other side of HistoryEvent.
struct ClientEvent {
  enum class Kind : uint8_t { kPut, kPull, kPush };
  Kind kind = Kind::kPull;
  UnitId unit;
  uint64_t clock = 0;
  ReplyHead reply;
  std::span<const uint64_t> keys;  // of rows
  std::span<const float> values;   // pull
};
// Takes what succeeded, when the worker waits for it, on the worker's thread. Spans are valid
// during the call.
using ClientRecorder = std::function<void(const ClientEvent&)>;

}  // namespace lockstep::server
