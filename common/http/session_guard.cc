#include "common/base/nonce.h"
#include "common/http/guard.h"
#include "common/http/signed_session.h"

namespace lockstep::http {
namespace {

Response refusal() {
  return {.status = 401,
          .body = R"({"error":"expected a session of somebody who has the job's token"})",
          .fields = {{"WWW-Authenticate", "Lockstep"}},
          .keeps_open = false};
}

class SessionGuard final : public Guard {
 public:
  explicit SessionGuard(SessionServer::Options options) : session_(std::move(options)) {}

  std::optional<Response> check(Head& head) override {
    const std::string_view authorization = head.field("Authorization");
    is_authentic_ = false;
    if (head.target == kSessionPath) {
      const std::optional<std::string> proof = session_.greet(authorization);
      if (head.method != "GET" || !proof) return refusal();
      return Response{.body = "{}", .fields = {{kProofField, *proof}}};
    }
    if (!is_session_authorization(authorization)) return std::nullopt;
    is_authentic_ = session_.accept(authorization, head.method, head.target);
    head.is_authentic = is_authentic_;
    return is_authentic_ ? std::nullopt : std::optional(refusal());
  }

  std::optional<Response> check_body(std::string_view body) override {
    if (!is_authentic_ || session_.accept_body(body)) return std::nullopt;
    is_authentic_ = false;
    return refusal();
  }

  void sign(Response& response) override {
    if (!is_authentic_) return;
    is_authentic_ = false;
    response.fields.push_back({kProofField, session_.sign(response.status, response.body)});
  }

 private:
  SessionServer session_;
  bool is_authentic_ = false;  // the request that is being answered
};

}  // namespace

MakeGuard session_guards(std::string server_name, std::string secret) {
  return [server_name = std::move(server_name), secret = std::move(secret)] {
    return std::make_unique<SessionGuard>(SessionServer::Options{
        .server_name = server_name, .secret = secret, .nonce = random_nonce()});
  };
}

}  // namespace lockstep::http
