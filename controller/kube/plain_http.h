#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/kube/http.h"

namespace lockstep::kube {

// The thread that runs the connections of plain clients; it ends with the last owner.
class PlainNetwork;
std::shared_ptr<PlainNetwork> start_plain_network();

class PlainExchange;
class PlainPool;

// How requests are authenticated in both directions (common/http/signed_session.h).
struct PlainSession {
  std::string server_name;
  std::vector<std::string> secrets;  // the server has one of them
  // A server that answers 404 to the greeting is older than sessions: send it the secret as a
  // bearer token instead, and the next one after 401. Never after it has shown that it has one.
  bool may_send_secret = false;
  bool encrypts = false;  // bodies, in both directions
};

// A client for HTTP/1.1 without TLS at one address, over Boost.Beast, for untrusted servers: agents
// run in pods of any user. Whatever such a server sends, a request takes no more time than its
// deadline and no more memory than its reply_bytes_max plus some 128 KiB. Connections are reused,
// and thousands of clients share one thread. Used from the loop's thread, on which all answers
// come. Destroying it cancels open requests without an answer; only that must happen before the
// mailbox and the timers are destroyed.
class PlainHttpClient {
 public:
  struct Server {
    std::string address;  // an IP address
    uint16_t port = 80;
  };

  // With a session, each connection begins with a greeting, and HttpRequest::authorization is
  // ignored.
  PlainHttpClient(Server server, Mailbox& mailbox, loop::Timers& timers,
                  std::shared_ptr<PlainNetwork> network,
                  std::optional<PlainSession> session = std::nullopt);
  ~PlainHttpClient();
  PlainHttpClient(const PlainHttpClient&) = delete;
  PlainHttpClient& operator=(const PlainHttpClient&) = delete;

  // Answers exactly once, at the latest at the deadline (kTimeout). kUnavailable if there is no
  // connection, it breaks, or the reply is not HTTP; kInvalid for a reply that is too large, and
  // for an invalid request or address. Sends a GET once more if the server had closed the
  // connection that it was sent on. With a session, kNotFound if the server has none of the
  // secrets, or is asked to encrypt and does not, and kUnavailable if a reply is not the server's
  // own.
  void send(HttpRequest request, std::function<void(Result<HttpReply>)> done);

 private:
  const Server server_;
  Mailbox& mailbox_;
  loop::Timers& timers_;
  const std::shared_ptr<PlainNetwork> network_;
  const bool has_session_;
  const bool encrypts_;
  std::shared_ptr<PlainPool> pool_;
  std::vector<std::weak_ptr<PlainExchange>> exchanges_;  // may include ended ones
};

}  // namespace lockstep::kube
