#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "controller/kube/plain_http.h"

namespace lockstep::kube {

class PlainConnection;

// One request from start to end, shared by the network's thread and the loop's; a mutex guards the
// members that both use. It may outlive the network, the mailbox and the timers, and touches none
// of them once it has ended or was abandoned.
class PlainExchange : public std::enable_shared_from_this<PlainExchange> {
 public:
  struct Request {
    std::string method;
    std::string target;
    std::string head;  // all lines but an Authorization and the empty one at the end
    std::string body;
    bool may_repeat = false;  // sending it twice does no harm
    size_t reply_bytes_max = 0;
  };
  using Done = std::function<void(Result<HttpReply>)>;

  PlainExchange(Mailbox& mailbox, loop::Timers& timers, std::weak_ptr<PlainNetwork> network,
                Request request, Done done);

  // Called on the loop's thread.
  void start(Duration deadline);
  // Cancels the request. Nothing is answered or posted afterwards.
  void abandon();

  // Called on the network's thread, from here on.
  const Request& request() const { return request_; }
  bool is_abandoned();
  // Sets the connection that carries this exchange. It closes when the exchange is abandoned.
  void carried_by(std::weak_ptr<PlainConnection> connection) { connection_ = connection; }
  // Sets status and fields; the body comes by take(), which returns false if it is larger than
  // allowed.
  void on_head(HttpReply reply) { reply_ = std::move(reply); }
  bool take(std::string_view piece);
  const HttpReply& reply() const { return reply_; }
  void set_body(std::string body) { reply_.body = std::move(body); }
  // The last call is one of these two.
  void end_well() { post(std::move(reply_)); }
  void fail(Error error) { post(std::move(error)); }

 private:
  void post(Result<HttpReply> result);
  void finish(Result<HttpReply> result);

  const Request request_;

  // Used on the network's thread.
  std::weak_ptr<PlainConnection> connection_;
  HttpReply reply_;

  // Used on the loop's thread.
  Mailbox& mailbox_;
  loop::Timers& timers_;
  const std::weak_ptr<PlainNetwork> network_;
  Done done_;
  std::optional<loop::Timers::Id> deadline_;
  bool is_over_ = false;

  std::mutex mutex_;
  bool is_abandoned_ = false;
  bool has_ended_ = false;
};

}  // namespace lockstep::kube
