#include "local/http/waker.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace lockstep::local {

namespace asio = boost::asio;
using boost::system::error_code;

Waker::Waker(SessionContext& context, boost::beast::tcp_stream& stream)
    : context_(context), shared_(std::make_shared<Shared>(stream.get_executor())) {
  context_.watchers.insert(&shared_->timer);
  stream.expires_never();
  asio::co_spawn(stream.get_executor(), watch_for_disconnect(stream.socket(), shared_),
                 asio::detached);
}

Waker::~Waker() {
  context_.watchers.erase(&shared_->timer);
  shared_->abandoned = true;
}

asio::awaitable<void> Waker::wait_until(TimePoint until) {
  error_code ignored;
  // wake_watchers moved the expiry into the past if something happened since arm().
  if (shared_->timer.expiry() == TimePoint::max() && !shared_->closed)
    shared_->timer.expires_at(until);
  co_await shared_->timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<void> Waker::watch_for_disconnect(asio::ip::tcp::socket& socket,
                                                  std::shared_ptr<Shared> shared) {
  error_code error;
  co_await socket.async_wait(asio::ip::tcp::socket::wait_read,
                             asio::redirect_error(asio::use_awaitable, error));
  if (shared->abandoned) co_return;
  shared->closed = true;
  shared->timer.expires_at(asio::steady_timer::time_point::min());
}

}  // namespace lockstep::local
