#pragma once

#include <utility>  // Boost 1.74's awaitable.hpp needs it and does not include it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>

#include "local/http/session.h"

namespace lockstep::local {

// Returns when a watch must wake even if nothing changes: at its end or, if its client asked for
// bookmarks, at the next bookmark.
inline TimePoint wake_time(TimePoint end, TimePoint next_bookmark, bool bookmarks) {
  return bookmarks ? std::min(end, next_bookmark) : end;
}

// Wakes a streaming session when something changes in the Api or its client disconnects.
class Waker {
 public:
  // `context` and `stream` outlive the Waker. The client must not send any more: whatever arrives
  // counts as the end of the connection.
  Waker(SessionContext& context, boost::beast::tcp_stream& stream);
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  bool closed() const { return shared_->closed; }
  // Wake-ups after arm() are not lost, even if they come before wait_until().
  void arm() { shared_->timer.expires_at(TimePoint::max()); }
  boost::asio::awaitable<void> wait_until(TimePoint until);

 private:
  struct Shared {
    explicit Shared(boost::asio::any_io_executor executor) : timer(executor) {}
    boost::asio::steady_timer timer;
    bool closed = false;
    bool abandoned = false;
  };

  static boost::asio::awaitable<void> watch_for_disconnect(boost::asio::ip::tcp::socket& socket,
                                                           std::shared_ptr<Shared> shared);

  SessionContext& context_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep::local
