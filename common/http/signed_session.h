#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/base/sha256.h"

namespace lockstep::http {

// Requests and replies of one HTTP connection, authenticated in both directions by a secret that
// both sides have and neither sends. Their bodies are encrypted if the client asks for it. The
// client is the controller, the server an agent, the secret the job's token.
//
// The connection begins with a greeting, in which both sides give 32 random bytes:
//   GET /v1/session            Authorization: Lockstep <client nonce>
//   200                        Lockstep-Proof: <server nonce> <mac>
// Then each request and each reply carries a counter, which begins at 1 and grows by 1:
//   METHOD TARGET              Authorization: Lockstep <counter> <digest> <mac>
//   STATUS                     Lockstep-Proof: <counter> <mac>
// Nonces, digests (SHA-256 of the body) and macs are 64 lower-case hex digits, counters decimal.
// Each direction has its own key, which belongs to this connection and to the server's name alone:
//   key(D)   = HKDF-SHA256(salt = client nonce . server nonce, secret,
//                          info = "lockstep session 1/" . D . "/" . server name)
//   greeting = HMAC-SHA256(key("reply"), "hello")
//   request  = HMAC-SHA256(key("request"), counter \n method \n target \n digest)
//   reply    = HMAC-SHA256(key("reply"), counter \n the request's mac \n status \n digest)
// A client that wants encryption adds " encrypted" to its greeting. The greeting's mac is then of
// "hello encrypted", each body that is not empty is AES-128-GCM with a tag at its end, the counter
// is its number (common/crypto/aead.h), and digests are of the bodies as they are sent. These two
// keys have the first 16 bytes of key("request body") and key("reply body"). The target includes
// the query. The name is the pod's, so that nobody can lead the controller from one agent of a job
// to another one, which has the same token.
//
// Consequences:
// - A recorded message is refused everywhere: on another connection for its key, on the same one
//   for its counter. A reply belongs to one request.
// - The server knows from the head alone who sends a request. Strangers can't make it read a body.
// - The client knows the server before it sends a request, and sends nothing that lets others act.
// - A message that fails its check ends the connection, because the counters can't go on.
// - Nobody in between can make the two do without encryption: the greeting's mac would be wrong.
// - There is no forward secrecy: who has the secret can read what was recorded before.

inline constexpr char kSessionPath[] = "/v1/session";
inline constexpr char kProofField[] = "Lockstep-Proof";

struct SessionNonces {
  Digest client{};
  Digest server{};
};

// The keys of one connection.
struct SessionKeys {
  Digest request{};
  Digest reply{};
};
SessionKeys session_keys(std::string_view secret, const SessionNonces& nonces,
                         std::string_view server_name);

// The keys of its bodies, of which the first 16 bytes count.
SessionKeys session_body_keys(std::string_view secret, const SessionNonces& nonces,
                              std::string_view server_name);

// Returns whether an Authorization field is of this scheme.
bool is_session_authorization(std::string_view authorization);

// The client's side of one connection.
class SessionClient {
 public:
  struct Options {
    std::string server_name;
    std::vector<std::string> secrets;  // the server has one of them
    Digest nonce{};                    // random, for this connection alone
    bool encrypts = false;
  };
  explicit SessionClient(Options options) : options_(std::move(options)) {}

  // Returns the Authorization of the greeting.
  std::string hello() const;
  // Reads the Lockstep-Proof of the greeting's reply. Returns whether the server has one of the
  // secrets, which the session then uses.
  bool accept(std::string_view proof);
  bool encrypts() const { return options_.encrypts; }
  // Call the following ones after accept() has returned true.
  SessionKeys body_keys() const;
  // The number of the request that was signed last, and of its reply.
  uint64_t number() const { return counter_; }
  // Returns the Authorization of the next request.
  std::string sign(std::string_view method, std::string_view target, const Digest& body);
  // Returns whether the reply answers the request that was signed last, and is as the server sent
  // it.
  bool check(std::string_view proof, unsigned status, const Digest& body) const;

 private:
  Options options_;
  size_t secret_ = 0;  // index of the server's
  SessionNonces nonces_;
  SessionKeys keys_;
  uint64_t counter_ = 0;
  std::string request_mac_;
};

// The server's side of one connection.
class SessionServer {
 public:
  struct Options {
    std::string server_name;
    std::string secret;         // empty: nobody is accepted
    Digest nonce{};             // random, for this connection alone
    bool must_encrypt = false;  // refuse greetings that do not ask for it
  };
  explicit SessionServer(Options options) : options_(std::move(options)) {}

  // Reads the Authorization of a greeting. Returns the Lockstep-Proof of its reply; nullopt if it
  // is malformed or not the first one.
  std::optional<std::string> greet(std::string_view authorization);
  // Whether the client has asked for encryption.
  bool encrypts() const { return encrypts_; }
  // The keys of the bodies, after the greeting, and the number of the last accepted request.
  SessionKeys body_keys() const;
  uint64_t number() const { return counter_; }
  // Reads the Authorization of a request. Returns whether it is the client's next one.
  bool accept(std::string_view authorization, std::string_view method, std::string_view target);
  // Returns whether this is the body that the accepted request announced.
  bool accept_body(std::string_view body) const;
  // Returns the Lockstep-Proof of the accepted request's reply.
  std::string sign(unsigned status, std::string_view body) const;

 private:
  Options options_;
  SessionNonces nonces_;
  bool encrypts_ = false;
  std::optional<SessionKeys> keys_;  // after the greeting
  uint64_t counter_ = 0;
  std::string request_mac_;
  std::string body_digest_;
};

}  // namespace lockstep::http
