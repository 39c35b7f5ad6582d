#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/http/message.h"

namespace lockstep::http {

// Authenticates the requests of one connection and signs their responses. Runs on the server's
// thread.
class Guard {
 public:
  virtual ~Guard() = default;

  // Judges the next request by its head. Sets head.is_authentic, or returns the response that the
  // handler is not asked for: of a greeting, or of a refusal.
  virtual std::optional<Response> check(Head& head) = 0;
  // The bytes that encryption adds to the body of an authentic request.
  virtual size_t body_overhead() const = 0;
  // Decrypts the body of an authentic request, if it is encrypted. Returns the refusal if it is not
  // the one that its head announced.
  virtual std::optional<Response> check_body(std::string& body) = 0;
  // Encrypts, if the request's body could be, and signs the response if the request was authentic.
  virtual void sign(Response& response) = 0;
};

using MakeGuard = std::function<std::unique_ptr<Guard>()>;

// Returns what makes a guard for each connection, with sessions as in signed_session.h. An empty
// secret accepts nobody. Other requests without an authorization of that scheme pass as strangers'.
// must_encrypt: it refuses sessions without encryption.
struct GuardOptions {
  std::string server_name;
  std::string secret;
  bool must_encrypt = false;
};
MakeGuard session_guards(GuardOptions options);

}  // namespace lockstep::http
