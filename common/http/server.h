#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::http {

// What is known of a request before its body is read.
struct Head {
  std::string method;
  std::string target;         // path and query, as they came
  std::string authorization;  // the header's value, empty if absent
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

// What the handler thinks of a request from its head alone.
struct Admission {
  std::optional<Response> refusal;  // the answer, at once: the body isn't even read
  size_t body_bytes_max = 0;        // else: what may follow
  bool trusted = false;  // it carried the secret: its connection is the last to be given up
};

class Handler {
 public:
  // Called once, by any thread, also after the client has left.
  using Respond = std::function<void(Response)>;

  virtual ~Handler() = default;
  // Both on the server's thread; they don't block and don't throw.
  virtual Admission admit(const Head& head) const = 0;
  virtual void handle(Request request, Respond respond) = 0;
  // The body of an error that the server itself finds: 400, 413, 431, 503.
  virtual Response error(unsigned status, const std::string& message) const = 0;
};

struct Limits {
  size_t header_bytes_max = 8 * 1024;
  size_t body_bytes_max = 4u << 20;
  size_t connections_max = 64;
  Duration header_limit =
      std::chrono::seconds(5);  // from its first byte, or the connection's start
  Duration body_limit = std::chrono::seconds(15);
  Duration idle_limit = std::chrono::seconds(75);  // of a trusted connection between requests
  Duration write_limit = std::chrono::seconds(10);
};

// An HTTP/1.1 server with keep-alive, one thread, and a bound on all that a client can take up:
// header and body bytes, the time of each part of a request, connections. When those run out, the
// untrusted connection that is oldest makes place, so that strangers who hold connections open
// can't keep the one with the secret out.
class Server {
 public:
  // Port 0: chosen by the system. kConflict if the port is taken: `[http] 10.0.0.1:29400 is taken`;
  // kInvalid if the address is none of this machine's. `handler` outlives the server.
  static Result<std::unique_ptr<Server>> start(const std::string& address, int port,
                                               Handler& handler, const Limits& limits = {});
  virtual ~Server() = default;

  virtual int port() const = 0;
  // Listens no more, closes idle connections and gives answers that are on their way up to
  // drain_limit to leave. Once; the destructor stops without waiting.
  virtual void stop(Duration drain_limit) = 0;
};

}  // namespace lockstep::http
