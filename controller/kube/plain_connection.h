#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "controller/kube/plain_exchange.h"
#include "controller/kube/reply_body.h"

namespace lockstep {

class PlainNetwork {
 public:
  PlainNetwork();
  ~PlainNetwork();
  PlainNetwork(const PlainNetwork&) = delete;
  PlainNetwork& operator=(const PlainNetwork&) = delete;

  boost::asio::io_context& io() { return io_; }
  // From any thread.
  void post(std::function<void()> call);

 private:
  void run();

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

// The connections to one server: those that nobody uses at the time, and new ones. On the network's
// thread but for making it and for letting go of it after close() was posted.
class PlainPool : public std::enable_shared_from_this<PlainPool> {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;

  PlainPool(PlainNetwork& network, const Endpoint& endpoint)
      : network_(network), endpoint_(endpoint) {}

  void run(std::shared_ptr<PlainExchange> exchange);
  // Over a connection that nothing was sent on before.
  void run_anew(std::shared_ptr<PlainExchange> exchange);
  void give_back(const std::shared_ptr<PlainConnection>& connection);
  void close();

 private:
  PlainNetwork& network_;
  const Endpoint endpoint_;
  bool is_closed_ = false;
  std::vector<std::shared_ptr<PlainConnection>> idle_;
};

// One connection, which carries one exchange at a time. What a server can take up by its reply is
// bounded: the heads, chunk headers and trailers by the buffer's size, the body by the exchange,
// all bytes together by a multiple of that, the time by the exchange's deadline. All on the
// network's thread.
class PlainConnection : public std::enable_shared_from_this<PlainConnection> {
 public:
  PlainConnection(PlainNetwork& network, std::weak_ptr<PlainPool> pool);

  // Whether the server has said nothing since its last reply, nor left.
  bool is_quiet();
  // A first exchange connects; each goes back to the pool afterwards, or closes.
  void connect(const PlainPool::Endpoint& endpoint, std::shared_ptr<PlainExchange> exchange);
  void run(std::shared_ptr<PlainExchange> exchange);
  void close();
  // Closes, if it carries that one.
  void drop(const PlainExchange& exchange);

 private:
  using ErrorCode = boost::system::error_code;
  using Parser = boost::beast::http::response_parser<ReplyBody>;

  void carry(std::shared_ptr<PlainExchange> exchange);
  void send();
  void expect_head();
  void read();
  void on_read(ErrorCode error, size_t bytes);
  void parse();
  void on_head();
  void on_reply();
  void fail(Error error);
  void fail(ErrorCode error);

  std::weak_ptr<PlainPool> pool_;
  boost::asio::ip::tcp::socket socket_;
  std::shared_ptr<PlainExchange> exchange_;  // null: idle, or closed
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  size_t heads_ = 0;      // of replies to this request
  size_t received_ = 0;   // bytes in answer to it
  bool is_used_ = false;  // carried an exchange before this one
};

}  // namespace lockstep
