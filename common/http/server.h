#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/http/guard.h"
#include "common/http/message.h"
#include "common/http/stream.h"

namespace lockstep::http {

class TlsContext;

// The handler's decision about a request, from its head alone.
struct Admission {
  std::optional<Response> refusal;  // send this immediately, without reading the body
  size_t body_bytes_max = 0;        // if not refused: the longest body accepted
  bool authenticated = false;       // the request carried the secret
};

// An exception of a handler or of its stream ends the connection that it serves, no other.
class Handler {
 public:
  // Call exactly once, from any thread. Allowed after the client has disconnected and after the
  // server has ended.
  using Respond = std::function<void(Response)>;

  virtual ~Handler() = default;
  // Both run on the server's thread and must not block.
  virtual Admission authorize(const Head& head) const = 0;
  virtual void handle(Request request, Respond respond) = 0;
  // Builds the response for an error that the server itself detects: 400, 413, 431.
  virtual Response error(unsigned status, const std::string& message) const = 0;
};

// Chooses who gives way when a client connects and connections_max are open.
enum class WhenFull {
  // Evicts the oldest unauthenticated connection, else the oldest idle one, else the oldest of all,
  // so that strangers who hold connections open cannot lock out a client that has the secret.
  kEvictOldest,
  // Evicts the oldest unauthenticated connection. If all have authenticated, closes the new one, so
  // that their streams go on.
  kEvictStranger,
};

struct ServerOptions {
  size_t header_bytes_max = 8 * 1024;
  size_t body_bytes_max = 4u << 20;  // even if the handler admits more
  size_t connections_max = 64;
  WhenFull when_full = WhenFull::kEvictOldest;
  // Size of a connection's kernel send buffer, 0 for the system's choice. A client that does not
  // read is noticed once it is full.
  int send_buffer_bytes = 0;

  Duration header_limit = std::chrono::seconds(5);    // TLS handshake; head from its first byte
  Duration request_limit = std::chrono::seconds(20);  // head and body, from the first byte
  Duration stranger_idle_limit = std::chrono::seconds(5);  // before and between requests
  Duration idle_limit = std::chrono::seconds(75);          // the same after authentication
  Duration write_limit = std::chrono::seconds(10);         // for one response or one chunk

  std::shared_ptr<TlsContext> tls = nullptr;  // null: plain HTTP
  MakeGuard guard{};                          // empty: no request is authentic
};

// An HTTP/1.1 server with keep-alive, plain or over TLS, with one thread. Bounds everything that a
// client can use up: header and body bytes, time, connections, and what is buffered for a client
// that does not read. Only the handler's own time between request and response has no limit.
class Server {
 public:
  // Port 0: the system chooses. kConflict if the port is in use: `[http] 10.0.0.1:29400 is already
  // in use`. kInvalid if the address is not one of this machine's. `handler` must outlive the
  // server.
  static Result<std::unique_ptr<Server>> start(const std::string& address, int port,
                                               Handler& handler, const ServerOptions& options = {});
  virtual ~Server() = default;

  virtual int port() const = 0;
  // Asks every waiting stream for its next chunk. Callable from any thread, cheap, and never lost:
  // a stream that is being written is asked afterwards anyway.
  virtual void wake_streams() = 0;
  // Stops listening, closes idle connections and streams, and gives pending responses up to
  // drain_limit to finish. The destructor stops without waiting. Not callable from a handler.
  virtual void stop(Duration drain_limit) = 0;
};

}  // namespace lockstep::http
