#include "common/base/nonce.h"
#include "common/http/body_cipher.h"
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
      if (head.method != "GET" || !proof || !make_cipher().ok()) return refusal();
      return Response{.body = "{}", .fields = {{kProofField, *proof}}};
    }
    if (!is_session_authorization(authorization)) return std::nullopt;
    is_authentic_ = session_.accept(authorization, head.method, head.target);
    head.is_authentic = is_authentic_;
    return is_authentic_ ? std::nullopt : std::optional(refusal());
  }

  size_t body_overhead() const override { return cipher_ ? kBodyTagBytes : 0; }

  std::optional<Response> check_body(std::string& body) override {
    if (!is_authentic_ || (session_.accept_body(body) && decrypt(body).ok())) return std::nullopt;
    is_authentic_ = false;
    return refusal();
  }

  // A response that can't be encrypted is not signed, so that the client does not believe it.
  void sign(Response& response) override {
    if (!is_authentic_) return;
    is_authentic_ = false;
    if (!encrypt(response.body).ok()) return response.body.clear();
    response.fields.push_back({kProofField, session_.sign(response.status, response.body)});
  }

 private:
  Status make_cipher() {
    if (!session_.encrypts()) return {};
    const SessionKeys keys = session_.body_keys();
    TRY_ASSIGN(cipher_, BodyCipher::make(keys.reply, keys.request));
    return {};
  }
  Status encrypt(std::string& body) {
    if (!cipher_) return {};
    TRY_ASSIGN(body, cipher_->encrypt(session_.number(), body));
    return {};
  }
  Status decrypt(std::string& body) {
    if (!cipher_) return {};
    TRY_ASSIGN(body, cipher_->decrypt(session_.number(), body));
    return {};
  }

  SessionServer session_;
  std::optional<BodyCipher> cipher_;  // of an encrypted session
  bool is_authentic_ = false;         // the request that is being answered
};

}  // namespace

MakeGuard session_guards(GuardOptions options) {
  return [options = std::move(options)] {
    return std::make_unique<SessionGuard>(
        SessionServer::Options{.server_name = options.server_name,
                               .secret = options.secret,
                               .nonce = random_nonce(),
                               .must_encrypt = options.must_encrypt});
  };
}

}  // namespace lockstep::http
