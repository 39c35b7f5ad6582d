#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/comm/handshake.h"
#include "agent/comm/socket.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep {

// The connections between this rank and every other: the higher rank connects to the lower one.
struct Connections {
  std::vector<UniqueFd> control;  // by rank; this rank's own is empty
  std::vector<UniqueFd> data;     // likewise; also empty where none was wanted
};

struct FormOptions {
  Identity self;
  std::vector<SocketAddress> addresses;  // by rank
  std::vector<bool> wants_data;          // by rank; the same for both ends of a pair
  UniqueFd listener;
  TimePoint deadline{};
  Duration handshake_limit{};
  std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
  std::function<Result<Digest>()> nonce;
};

// Connects, accepts and shakes hands until every connection stands, then closes the listener. One
// thread, no blocking: a stranger takes up one of a bounded number of places, for handshake_limit
// at most, and the oldest makes room for the next if all are taken. Errors: make_communicator.h.
Result<Connections> form_connections(FormOptions options);

}  // namespace lockstep
