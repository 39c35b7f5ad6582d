#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "controller/kube/plain_http.h"

namespace lockstep {

class PlainConnection;

// One request from start to end, and where the network's thread meets the loop's: what they share
// is behind the mutex. It may outlive the network, the mailbox and the timers, and touches none of
// them once it has ended or was abandoned.
class PlainExchange : public std::enable_shared_from_this<PlainExchange> {
 public:
  struct Request {
    std::string head;  // up to and with the empty line
    std::string body;
    bool may_repeat = false;  // it can't do anything twice
    size_t reply_bytes_max = 0;
  };
  using Done = std::function<void(Result<HttpReply>)>;

  PlainExchange(Mailbox& mailbox, Timers& timers, std::weak_ptr<PlainNetwork> network,
                Request request, Done done);

  // Loop's thread.
  void start(Duration deadline);
  // Nothing is answered or posted afterwards.
  void abandon();

  // The network's thread, from here.
  const Request& request() const { return request_; }
  bool is_abandoned();
  // The connection that carries it, and closes when this is abandoned.
  void carried_by(std::weak_ptr<PlainConnection> connection) { connection_ = connection; }
  // Status and fields; the body comes by take(). False: it is larger than allowed.
  void on_head(HttpReply reply) { reply_ = std::move(reply); }
  bool take(std::string_view piece);
  // Its last call is one of these two.
  void end_well() { post(std::move(reply_)); }
  void fail(Error error) { post(std::move(error)); }

 private:
  void post(Result<HttpReply> result);
  void finish(Result<HttpReply> result);

  const Request request_;

  // The network's.
  std::weak_ptr<PlainConnection> connection_;
  HttpReply reply_;

  // The loop's.
  Mailbox& mailbox_;
  Timers& timers_;
  const std::weak_ptr<PlainNetwork> network_;
  Done done_;
  std::optional<Timers::Id> deadline_;
  bool is_over_ = false;

  std::mutex mutex_;
  bool is_abandoned_ = false;
  bool has_ended_ = false;
};

}  // namespace lockstep
