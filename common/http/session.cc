#include "common/http/session.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace lockstep::http {
namespace {

namespace beast_http = boost::beast::http;
using Socket = boost::asio::ip::tcp::socket;

constexpr size_t kLingerBytesMax = 256 * 1024;
constexpr std::chrono::seconds kLingerLimit(2);

TimePoint steady_now() {
  return std::chrono::steady_clock::now();
}

std::string text(boost::beast::string_view view) {
  return std::string(view.data(), view.size());
}

}  // namespace

void ResponseQueue::post(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  if (io_ != nullptr) boost::asio::post(*io_, std::move(call));
}

void ResponseQueue::close() {
  const std::lock_guard lock(mutex_);
  io_ = nullptr;
}

Session::Session(Socket socket, const Shared& server)
    : stream_(std::move(socket)),
      server_(server),
      buffer_(server.limits.header_bytes_max + 64 * 1024),
      since_(steady_now()) {}

void Session::start() {
  stream_.expires_after(server_.limits.header_limit);
  wait_for_request();
}

void Session::close() {
  Error ignored;
  stream_.socket().shutdown(Socket::shutdown_both, ignored);
  stream_.close();
  server_.on_closed(shared_from_this());
}

void Session::close_when_idle() {
  last_ = true;
  if (!busy_) close();
}

// A authenticated connection may stay idle between requests. The head has its own, shorter limit.
void Session::wait_for_request() {
  busy_ = false;
  if (last_) return close();
  if (buffer_.size() > 0) return read_head();  // pipelined
  stream_.async_read_some(buffer_.prepare(4096),
                          [self = shared_from_this()](Error error, size_t bytes) {
                            if (error) return self->close();
                            self->buffer_.commit(bytes);
                            self->read_head();
                          });
}

void Session::read_head() {
  busy_ = true;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(server_.limits.header_bytes_max));
  parser_->body_limit(server_.limits.body_bytes_max);
  stream_.expires_after(server_.limits.header_limit);
  beast_http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](Error error, size_t) { self->on_head(error); });
}

void Session::on_head(Error error) {
  if (error) return on_read_error(error);
  const auto& request = parser_->get();
  head_ = {text(request.method_string()), text(request.target()),
           text(request[beast_http::field::authorization])};
  const Admission admission = server_.handler.authorize(head_);
  if (admission.authenticated) {
    authenticated_ = true;
    since_ = steady_now();
  }
  if (admission.refusal) {
    last_ = last_ || !parser_->is_done();  // do not read the rest of the request
    return answer(*admission.refusal);
  }
  const auto length = parser_->content_length();
  if (length && *length > admission.body_bytes_max)
    return on_read_error(beast_http::error::body_limit);
  parser_->body_limit(admission.body_bytes_max);
  stream_.expires_after(server_.limits.body_limit);
  if (boost::beast::iequals(request[beast_http::field::expect], "100-continue"))
    return send_continue();
  read_body();
}

// Sends 100 Continue, which curl waits for before a larger body. Source: RFC 9110, section 10.1.1.
void Session::send_continue() {
  continue_ = {beast_http::status::continue_, 11};
  beast_http::async_write(stream_, continue_, [self = shared_from_this()](Error error, size_t) {
    if (error) return self->close();
    self->read_body();
  });
}

void Session::read_body() {
  if (parser_->is_done()) return on_body({});
  beast_http::async_read(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](Error error, size_t) { self->on_body(error); });
}

void Session::on_body(Error error) {
  if (error) return on_read_error(error);
  last_ = last_ || !parser_->keep_alive();
  stream_.expires_never();  // no limit while the handler works; it limits its own time
  Request request = {std::move(head_), std::move(parser_->get().body())};
  const auto respond = [weak = weak_from_this(), responses = server_.responses](Response response) {
    responses->post([weak, response = std::move(response)]() mutable {
      if (const auto session = weak.lock()) session->answer(std::move(response));
    });
  };
  server_.handler.handle(std::move(request), respond);
}

void Session::on_read_error(Error error) {
  last_ = true;
  if (error == beast_http::error::body_limit) {
    return answer(server_.handler.error(413, "the request body is larger than its limit"));
  }
  if (error == beast_http::error::header_limit || error == beast_http::error::buffer_overflow) {
    return answer(server_.handler.error(431, "the request header is larger than " +
                                                 std::to_string(server_.limits.header_bytes_max) +
                                                 " bytes"));
  }
  const bool ours =
      error.category() == beast_http::make_error_code(beast_http::error::bad_method).category();
  const bool gone =
      error == beast_http::error::end_of_stream || error == beast_http::error::partial_message;
  if (!ours || gone) return close();  // the client disconnected or was too slow
  answer(server_.handler.error(400, "expected an HTTP/1.1 request: " + error.message()));
}

void Session::answer(Response response) {
  response_ = {static_cast<beast_http::status>(response.status), 11};
  response_.set(beast_http::field::content_type, response.content_type);
  response_.set(beast_http::field::cache_control, "no-store");
  if (response.status == 401) response_.set(beast_http::field::www_authenticate, "Bearer");
  if (!response.allow.empty()) response_.set(beast_http::field::allow, response.allow);
  response_.body() = std::move(response.body);
  response_.keep_alive(!last_);
  response_.prepare_payload();
  if (head_.method == "HEAD") response_.body().clear();
  stream_.expires_after(server_.limits.write_limit);
  beast_http::async_write(stream_, response_, [self = shared_from_this()](Error error, size_t) {
    self->on_written(error);
  });
}

void Session::on_written(Error error) {
  if (error) return close();
  if (last_) return linger();
  stream_.expires_after(authenticated_ ? server_.limits.idle_limit : server_.limits.header_limit);
  wait_for_request();
}

// Reads and discards what the client still sends, for a short time. Closing with unread bytes would
// reset the connection, and the client might lose the response.
void Session::linger() {
  Error ignored;
  stream_.socket().shutdown(Socket::shutdown_send, ignored);
  if (discarded_.empty()) {
    discarded_.resize(16 * 1024);
    stream_.expires_after(kLingerLimit);
  }
  stream_.async_read_some(boost::asio::buffer(discarded_),
                          [self = shared_from_this()](Error error, size_t bytes) {
                            self->discarded_bytes_ += bytes;
                            const bool enough = self->discarded_bytes_ > kLingerBytesMax;
                            if (error || enough) return self->close();
                            self->linger();
                          });
}

}  // namespace lockstep::http
