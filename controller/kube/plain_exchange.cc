#include "controller/kube/plain_exchange.h"

#include "controller/kube/plain_connection.h"

namespace lockstep::kube {

PlainExchange::PlainExchange(Mailbox& mailbox, loop::Timers& timers,
                             std::weak_ptr<PlainNetwork> network, Request request, Done done)
    : request_(std::move(request)),
      mailbox_(mailbox),
      timers_(timers),
      network_(std::move(network)),
      done_(std::move(done)) {}

void PlainExchange::start(Duration deadline) {
  deadline_ = timers_.after(deadline, [self = shared_from_this()] {
    self->deadline_.reset();
    self->finish(timed_out("[http] timed out before the reply was complete"));
  });
}

void PlainExchange::abandon() {
  if (is_over_) return;
  is_over_ = true;
  if (deadline_) timers_.cancel(*deadline_);
  deadline_.reset();
  done_ = {};
  {
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
    if (has_ended_) return;  // the network is done with it
  }
  const std::shared_ptr<PlainNetwork> network = network_.lock();
  if (network == nullptr) return;
  network->post([self = shared_from_this()] {
    if (const auto connection = self->connection_.lock()) connection->drop(*self);
  });
}

bool PlainExchange::is_abandoned() {
  const std::lock_guard lock(mutex_);
  return is_abandoned_;
}

bool PlainExchange::take(std::string_view piece) {
  if (piece.size() > request_.reply_bytes_max - reply_.body.size()) return false;
  reply_.body += piece;
  return true;
}

void PlainExchange::post(Result<HttpReply> result) {
  const std::lock_guard lock(mutex_);  // held while posting, so that abandon() waits for it
  if (is_abandoned_) return;
  has_ended_ = true;
  mailbox_.post([self = shared_from_this(), result = std::move(result)]() mutable {
    self->finish(std::move(result));
  });
}

void PlainExchange::finish(Result<HttpReply> result) {
  if (is_over_) return;
  const Done done = std::move(done_);
  abandon();
  done(std::move(result));
}

}  // namespace lockstep::kube
