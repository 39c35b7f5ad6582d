#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/kube/http.h"

namespace lockstep {

// The thread that connections of plain clients live on; it ends with the last of them.
class PlainNetwork;
std::shared_ptr<PlainNetwork> start_plain_network();

class PlainExchange;
class PlainPool;

// HTTP/1.1 without TLS to one address, over Boost.Beast, for servers that may mean harm: agents run
// in pods of any user. Whatever such a server says, a request takes no more time than its deadline
// and no more memory than its reply_bytes_max and some 128 KiB. Connections are kept and used
// again, thousands of clients share one thread. Used from the loop's thread, on which all answers
// come. Destroying it cancels what is still open, without an answer; only that must come before the
// end of the mailbox and of the timers.
class PlainHttpClient {
 public:
  struct Server {
    std::string address;  // an IP address
    uint16_t port = 80;
  };

  PlainHttpClient(Server server, Mailbox& mailbox, Timers& timers,
                  std::shared_ptr<PlainNetwork> network);
  ~PlainHttpClient();
  PlainHttpClient(const PlainHttpClient&) = delete;
  PlainHttpClient& operator=(const PlainHttpClient&) = delete;

  // Exactly one answer, at the latest at the deadline (kTimeout); kUnavailable where there is no
  // connection, it breaks or what comes is not HTTP; kInvalid for a reply that is too large, and
  // where the request or the address is none. A GET is sent once more where the server had closed
  // the connection that it was sent on.
  void send(HttpRequest request, std::function<void(Result<HttpReply>)> done);

 private:
  const Server server_;
  Mailbox& mailbox_;
  Timers& timers_;
  const std::shared_ptr<PlainNetwork> network_;
  std::shared_ptr<PlainPool> pool_;
  std::vector<std::weak_ptr<PlainExchange>> exchanges_;  // that may not have ended
};

}  // namespace lockstep
