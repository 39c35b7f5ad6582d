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
#include <utility>
#include <vector>

#include "common/http/body_cipher.h"
#include "common/http/signed_session.h"
#include "controller/kube/plain_exchange.h"
#include "controller/kube/reply_body.h"

namespace lockstep::kube {

class PlainNetwork {
 public:
  PlainNetwork();
  ~PlainNetwork();
  PlainNetwork(const PlainNetwork&) = delete;
  PlainNetwork& operator=(const PlainNetwork&) = delete;

  boost::asio::io_context& io() { return io_; }
  // Thread-safe.
  void post(std::function<void()> call);

 private:
  void run();

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

// The connections to one server: idle ones, and new ones. Used on the network's thread, except to
// make it and to drop it after close() was posted.
class PlainPool : public std::enable_shared_from_this<PlainPool> {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;
  struct Options {
    Endpoint endpoint;
    std::string host;  // for the field of that name
    std::optional<PlainSession> session;
  };

  PlainPool(PlainNetwork& network, Options options)
      : network_(network), options_(std::move(options)) {}

  void run(std::shared_ptr<PlainExchange> exchange);
  // Runs the exchange over a new connection.
  void run_anew(std::shared_ptr<PlainExchange> exchange);
  void give_back(const std::shared_ptr<PlainConnection>& connection);
  void close();

  const Options& options() const { return options_; }
  // Returns the secret to send as a bearer token; nullptr if the server must not get one.
  const std::string* bearer_token() const;
  size_t bearer_token_number() const { return bearer_token_; }
  // The server refused the token of that number, the last of `refusals` different ones. Returns
  // whether there is one more to try, which bearer_token() then returns. Several connections may
  // have been refused with the same one.
  bool next_bearer_token(size_t number, size_t refusals);
  void note_proof() { has_proof_ = true; }

 private:
  PlainNetwork& network_;
  const Options options_;
  bool is_closed_ = false;
  bool has_proof_ = false;  // the server has shown that it has a secret
  size_t bearer_token_ = 0;
  std::vector<std::shared_ptr<PlainConnection>> idle_;
};

// One connection, which carries one exchange at a time. Used on the network's thread. A server's
// reply uses bounded resources:
// - heads, chunk headers and trailers are limited by the buffer's size
// - the body is limited by the exchange
// - all bytes together are limited by a multiple of that
// - the time is limited by the exchange's deadline
class PlainConnection : public std::enable_shared_from_this<PlainConnection> {
 public:
  PlainConnection(PlainNetwork& network, std::weak_ptr<PlainPool> pool);

  // Returns whether the server has neither sent anything since its last reply nor left.
  bool is_quiet();
  // connect() is for the first exchange. After each exchange the connection goes back to the pool,
  // or closes.
  void connect(const PlainPool& pool, std::shared_ptr<PlainExchange> exchange);
  void run(std::shared_ptr<PlainExchange> exchange);
  void close();
  // Closes if it carries that exchange.
  void drop(const PlainExchange& exchange);

 private:
  using ErrorCode = boost::system::error_code;
  using Parser = boost::beast::http::response_parser<ReplyBody>;

  void carry(std::shared_ptr<PlainExchange> exchange);
  void greet(const PlainPool& pool);
  void on_greeted(unsigned status, bool may_stay);
  bool try_next_token(bool may_stay);
  Status make_cipher();
  Status encrypt_body();
  Status check_reply(unsigned status);
  const std::string& sent_body() const;
  std::string authorization();
  void send();
  void wait();
  void expect_head();
  void read();
  void on_read(ErrorCode error, size_t bytes);
  void parse();
  void on_head();
  void on_reply();
  void end_exchange(bool may_stay);
  void fail(Error error);
  void fail(ErrorCode error);

  std::weak_ptr<PlainPool> pool_;
  boost::asio::ip::tcp::socket socket_;
  std::shared_ptr<PlainExchange> exchange_;  // null: idle, or closed
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  size_t heads_ = 0;      // of interim replies to this request
  size_t received_ = 0;   // bytes received in reply to it
  bool is_used_ = false;  // carried an exchange before this one

  // How the exchanges are authenticated, after the greeting.
  enum class Trust { kNone, kGreeting, kSession, kBearer };
  Trust trust_ = Trust::kNone;
  size_t bearer_token_ = 0;  // number of the one sent last
  std::optional<http::SessionClient> session_;
  std::optional<http::BodyCipher> cipher_;  // of an encrypted session
  std::string proof_;                       // the field of the last reply
  std::string written_;                     // the head that is being written
  std::string encrypted_;                   // the body that is being written, of such a session
  size_t refusals_ = 0;                     // of tokens, for this exchange
};

}  // namespace lockstep::kube
