#include "common/http/server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "common/base/log.h"
#include "common/http/session.h"
#include "common/http/transport.h"

namespace lockstep::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause(100);  // after a failed accept

class AsioServer final : public Server {
 public:
  AsioServer(Handler& handler, const ServerOptions& options)
      : acceptor_(io_),
        pause_(io_),
        drain_(io_),
        shared_{handler, options, std::make_shared<CallQueue>(&io_),
                [this](const auto& session) { forget(session); }} {}
  ~AsioServer() override { stop(Duration::zero()); }

  Status listen(const std::string& address, int port);
  int port() const override { return port_; }
  void wake_streams() override;
  void stop(Duration drain_limit) override;

 private:
  void accept();
  void admit(tcp::socket socket);
  bool evict_oldest();
  void forget(const std::shared_ptr<Session>& session);

  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  asio::steady_timer drain_;
  Session::Shared shared_;
  std::set<std::shared_ptr<Session>> sessions_;
  std::atomic<bool> wake_is_pending_ = false;
  bool accept_fails_ = false;
  bool stopping_ = false;
  int port_ = 0;
  std::jthread thread_;
};

Status AsioServer::listen(const std::string& address, int port) {
  const std::string where = "[http] " + address + ":" + std::to_string(port);
  ErrorCode error;
  const asio::ip::address ip = asio::ip::make_address(address, error);
  if (error) return invalid(where + ": expected an IP address");
  const tcp::endpoint endpoint(ip, static_cast<uint16_t>(port));
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) return conflict(where + " is already in use");
  if (error) return invalid(where + ": " + error.message());
  port_ = acceptor_.local_endpoint().port();
  accept();
  thread_ = std::jthread([this] { io_.run(); });
  return {};
}

void AsioServer::accept() {
  acceptor_.async_accept([this](ErrorCode error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    const bool failed_before = std::exchange(accept_fails_, bool(error));
    if (!error) {
      admit(std::move(socket));
      return accept();
    }
    // Most likely out of file descriptors, until some connections end.
    if (!failed_before) log_warning("can't accept a connection", {{"error", error.message()}});
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](ErrorCode) {
      if (acceptor_.is_open()) accept();
    });
  });
}

void AsioServer::admit(tcp::socket socket) {
  const ServerOptions& options = shared_.options;
  // Without a place for it, the socket is closed by its destructor.
  if (sessions_.size() >= options.connections_max && !evict_oldest()) return;
  ErrorCode ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (options.send_buffer_bytes > 0)
    socket.set_option(asio::socket_base::send_buffer_size(options.send_buffer_bytes), ignored);
  auto transport = options.tls == nullptr ? make_plain_transport(std::move(socket))
                                          : options.tls->wrap(std::move(socket));
  if (transport == nullptr) return;
  const auto session = std::make_shared<Session>(io_.get_executor(), std::move(transport), shared_);
  sessions_.insert(session);
  session->start();
}

// Evicts the oldest unauthenticated connection, else, if the options allow it, the oldest idle
// authenticated one, else the oldest of all. Returns whether it evicted one.
bool AsioServer::evict_oldest() {
  const auto rank = [](const std::shared_ptr<Session>& session) {
    return std::tuple(session->authenticated(), session->authenticated() && session->busy(),
                      session->since());
  };
  const auto oldest =
      std::min_element(sessions_.begin(), sessions_.end(),
                       [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  // A copy, because close() may call forget(), which erases the pointer in the set.
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::shared_ptr<Session> session = *oldest;
  if (session->authenticated() && shared_.options.when_full == WhenFull::kEvictStranger) {
    return false;
  }
  session->close();
  return true;
}

void AsioServer::forget(const std::shared_ptr<Session>& session) {
  sessions_.erase(session);
  if (stopping_ && sessions_.empty()) io_.stop();
}

// Many calls become one round over the sessions.
void AsioServer::wake_streams() {
  if (wake_is_pending_.exchange(true)) return;
  shared_.calls->post([this] {
    wake_is_pending_ = false;
    for (const auto& session : sessions_) session->wake();
  });
}

void AsioServer::stop(Duration drain_limit) {
  if (!thread_.joinable()) return;
  asio::post(io_, [this, drain_limit] {
    ErrorCode ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    stopping_ = true;
    if (sessions_.empty()) return io_.stop();
    drain_.expires_after(drain_limit);
    drain_.async_wait([this](ErrorCode) { io_.stop(); });
    const auto sessions = sessions_;
    for (const auto& session : sessions) session->close_when_idle();
  });
  thread_.join();
  shared_.calls->close();
  const auto sessions = sessions_;
  for (const auto& session : sessions) session->close();
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const std::string& address, int port,
                                              Handler& handler, const ServerOptions& options) {
  auto server = std::make_unique<AsioServer>(handler, options);
  TRY(server->listen(address, port));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace lockstep::http
