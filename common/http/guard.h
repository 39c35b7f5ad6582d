#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
  // Returns the refusal if the body of an authentic request is not the one that its head announced.
  virtual std::optional<Response> check_body(std::string_view body) = 0;
  // Signs the response if the request was authentic.
  virtual void sign(Response& response) = 0;
};

using MakeGuard = std::function<std::unique_ptr<Guard>()>;

// Returns what makes a guard for each connection, with sessions as in signed_session.h. An empty
// secret accepts nobody. Other requests without an authorization of that scheme pass as strangers'.
MakeGuard session_guards(std::string server_name, std::string secret);

}  // namespace lockstep::http
