#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/comm/handshake.h"
#include "agent/comm/records.h"
#include "agent/comm/socket.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::comm {

// An established connection, and the secrets with which both sides may encrypt what follows.
struct Connection {
  UniqueFd fd;
  SessionSecrets secrets;
  explicit operator bool() const { return bool(fd); }
};

// The connections between this rank and every other. The higher rank connects to the lower one.
struct Connections {
  std::vector<Connection> control;  // by rank; this rank's own is empty
  std::vector<Connection> data;     // likewise; also empty if not wanted
};

struct FormOptions {
  Identity self;
  std::vector<SocketAddress> addresses;  // by rank
  std::vector<bool> wants_data;          // by rank; equal at both ends of a pair
  UniqueFd listener;
  TimePoint deadline{};
  Duration handshake_limit{};
  std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
  std::function<Digest()> nonce;
};

// Connects, accepts and shakes hands until every connection is established, then closes the
// listener. Uses one thread and non-blocking sockets. Strangers may connect as often as they like:
// they hold no place that a rank needs (inbound.h). For errors see make_communicator.h.
Result<Connections> form_connections(FormOptions options);

}  // namespace lockstep::comm
