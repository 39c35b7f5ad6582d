#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/http/server.h"

namespace lockstep::http {

// Passes responses from any thread to the server's thread. After close() they are dropped.
class ResponseQueue {
 public:
  explicit ResponseQueue(boost::asio::io_context* io) : io_(io) {}
  void post(std::function<void()> call);
  void close();

 private:
  std::mutex mutex_;
  boost::asio::io_context* io_;
};

// One connection. Reads a request's head, asks the handler, reads the body, waits for the response,
// writes it, and starts over. Runs on the server's thread only; the server owns it until on_closed.
class Session : public std::enable_shared_from_this<Session> {
 public:
  struct Shared {  // what a session needs from the server
    Handler& handler;
    Limits limits;
    std::shared_ptr<ResponseQueue> responses;
    std::function<void(const std::shared_ptr<Session>&)> on_closed;  // may be called more than once
  };

  Session(boost::asio::ip::tcp::socket socket, const Shared& server);

  void start();
  void close();
  // Closes after the pending response, or immediately if there is none.
  void close_when_idle();

  bool authenticated() const { return authenticated_; }
  bool busy() const { return busy_; }
  // When an unauthenticated connection was accepted, or when a authenticated one sent its last
  // request.
  TimePoint since() const { return since_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Error = boost::beast::error_code;

  void wait_for_request();
  void read_head();
  void on_head(Error error);
  void send_continue();
  void read_body();
  void on_body(Error error);
  void on_read_error(Error error);
  void answer(Response response);
  void on_written(Error error);
  void linger();

  boost::beast::tcp_stream stream_;
  const Shared& server_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  Head head_;
  boost::beast::http::response<boost::beast::http::string_body> response_;
  boost::beast::http::response<boost::beast::http::empty_body> continue_;
  std::string discarded_;
  size_t discarded_bytes_ = 0;
  TimePoint since_;
  bool authenticated_ = false;
  bool busy_ = false;  // a request has begun and has not been answered yet
  bool last_ = false;  // close after this response
};

}  // namespace lockstep::http
