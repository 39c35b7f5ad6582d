#include "common/http/server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "common/http/session.h"

namespace lockstep::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause(100);  // after a failed accept

class BeastServer final : public Server {
 public:
  BeastServer(Handler& handler, const Limits& limits)
      : acceptor_(io_),
        pause_(io_),
        drain_(io_),
        shared_{handler, limits, std::make_shared<ResponseQueue>(&io_),
                [this](const auto& session) { forget(session); }} {}
  ~BeastServer() override { stop(Duration::zero()); }

  Status listen(const std::string& address, int port);
  int port() const override { return port_; }
  void stop(Duration drain_limit) override;

 private:
  void accept();
  void admit(tcp::socket socket);
  void evict_oldest();
  void forget(const std::shared_ptr<Session>& session);

  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  asio::steady_timer drain_;
  Session::Shared shared_;
  std::set<std::shared_ptr<Session>> sessions_;
  bool stopping_ = false;
  int port_ = 0;
  std::jthread thread_;
};

Status BeastServer::listen(const std::string& address, int port) {
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

void BeastServer::accept() {
  acceptor_.async_accept([this](ErrorCode error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (!error) {
      admit(std::move(socket));
      return accept();
    }
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](ErrorCode) {
      if (acceptor_.is_open()) accept();
    });
  });
}

void BeastServer::admit(tcp::socket socket) {
  if (sessions_.size() >= shared_.limits.connections_max) evict_oldest();
  ErrorCode ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const auto session = std::make_shared<Session>(std::move(socket), shared_);
  sessions_.insert(session);
  session->start();
}

// Evicts the oldest unauthenticated connection, else the oldest idle authenticated one, else the
// oldest of all.
void BeastServer::evict_oldest() {
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
  session->close();
}

void BeastServer::forget(const std::shared_ptr<Session>& session) {
  sessions_.erase(session);
  if (stopping_ && sessions_.empty()) io_.stop();
}

void BeastServer::stop(Duration drain_limit) {
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
  shared_.responses->close();
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const std::string& address, int port,
                                              Handler& handler, const Limits& limits) {
  auto server = std::make_unique<BeastServer>(handler, limits);
  TRY(server->listen(address, port));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace lockstep::http
