#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep::conformance {

// Where a server is and how it is known to be the right one.
struct Endpoint {
  std::string host;
  std::string port;
  bool tls = false;
  std::string server_name;  // expected in the certificate; empty: the host
  std::string ca_pem;       // empty: the system's authorities
  bool verify = true;
  std::string certificate_pem;  // of the client; empty: none
  std::string key_pem;
};

// One connection over TCP or TLS, blocking. A server that neither takes nor gives a byte for
// `kSilenceSeconds` ends it with kTimeout: a guard against hangs.
class Connection {
 public:
  static constexpr int kSilenceSeconds = 90;

  static Result<std::unique_ptr<Connection>> open(const Endpoint& endpoint);
  virtual ~Connection() = default;

  virtual Status write(std::string_view bytes) = 0;
  // What has come, at least a byte; empty: the server has closed.
  virtual Result<std::string> read() = 0;
  // From any thread: what another one waits for here ends at once.
  virtual void abort() = 0;
};

}  // namespace lockstep::conformance
