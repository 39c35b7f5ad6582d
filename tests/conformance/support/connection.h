#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep::conformance {

// A server's address and the TLS credentials of both sides.
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

// A blocking TCP or TLS connection. Calls fail with kTimeout if the server neither accepts nor
// sends a byte for `kSilenceSeconds`: a guard against hangs.
class Connection {
 public:
  static constexpr int kSilenceSeconds = 90;

  static Result<std::unique_ptr<Connection>> open(const Endpoint& endpoint);
  virtual ~Connection() = default;

  virtual Status write(std::string_view bytes) = 0;
  // Returns the received bytes, at least one; empty if the server has closed.
  virtual Result<std::string> read() = 0;
  // Makes a blocked call of another thread return immediately. Callable from any thread.
  virtual void abort() = 0;
};

}  // namespace lockstep::conformance
