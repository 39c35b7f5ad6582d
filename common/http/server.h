#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::http {

// The part of a request that is known before its body is read.
struct Head {
  std::string method;
  std::string target;         // path and query, as received
  std::string authorization;  // value of the Authorization header, empty if absent
};

struct Request {
  Head head;
  std::string body;
};

struct Response {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::string allow;  // for 405
};

// The handler's decision about a request, from its head alone.
struct Admission {
  std::optional<Response> refusal;  // send this immediately, without reading the body
  size_t body_bytes_max = 0;        // if not refused: the longest body accepted
  bool authenticated = false;  // the request carried the secret, so its connection is evicted last
};

class Handler {
 public:
  // Call exactly once, from any thread. Allowed after the client has disconnected.
  using Respond = std::function<void(Response)>;

  virtual ~Handler() = default;
  // Both run on the server's thread; they must not block or throw.
  virtual Admission authorize(const Head& head) const = 0;
  virtual void handle(Request request, Respond respond) = 0;
  // Builds the response for an error that the server itself detects: 400, 413, 431, 503.
  virtual Response error(unsigned status, const std::string& message) const = 0;
};

struct Limits {
  size_t header_bytes_max = 8 * 1024;
  size_t body_bytes_max = 4u << 20;
  size_t connections_max = 64;
  Duration header_limit = std::chrono::seconds(5);  // from its first byte, or from the accept
  Duration body_limit = std::chrono::seconds(15);
  Duration idle_limit =
      std::chrono::seconds(75);  // for a authenticated connection between requests
  Duration write_limit = std::chrono::seconds(10);
};

// An HTTP/1.1 server with keep-alive and one thread. Everything that a client can use up is
// bounded: header and body bytes, the time of each part of a request, the number of connections.
// When all connections are in use, the oldest unauthenticated one is evicted, so that strangers who
// hold connections open cannot lock out a client that has the secret.
class Server {
 public:
  // Port 0: the system chooses. kConflict if the port is in use: `[http] 10.0.0.1:29400 is already
  // in use`. kInvalid if the address is not one of this machine's. `handler` must outlive the
  // server.
  static Result<std::unique_ptr<Server>> start(const std::string& address, int port,
                                               Handler& handler, const Limits& limits = {});
  virtual ~Server() = default;

  virtual int port() const = 0;
  // Stops listening, closes idle connections, and gives pending responses up to drain_limit to
  // finish. Call once. The destructor stops without waiting.
  virtual void stop(Duration drain_limit) = 0;
};

}  // namespace lockstep::http
