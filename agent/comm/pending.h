#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "agent/comm/handshake.h"
#include "agent/comm/socket.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::comm {

// A connection in the middle of its handshake.
struct Pending {
  UniqueFd fd;
  std::string from;  // the other end, for messages
  Handshake handshake;
  TimePoint until{};
  bool connecting = false;
  bool ready = false;     // poll reports it, or it may have input for another reason
  bool answered = false;  // with a message that ends the handshake
  std::array<std::byte, 256> input{};
  size_t input_bytes = 0;
};

enum class Advance { kWaiting, kDone };

// Does nothing unless the connection is ready. Otherwise reads exactly what the handshake wants,
// answers, and goes on while there is more. Never blocks. Errors as Handshake::received(), or
// kUnavailable; the connection is of no more use then.
Result<Advance> advance(Pending& pending);

}  // namespace lockstep::comm
