#include "local/http/session.h"

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/ssl.hpp>
#include <optional>
#include <type_traits>

#include "local/http/log_file.h"
#include "local/http/messages.h"
#include "local/http/waker.h"

namespace lockstep::local {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr size_t kEventsPerChunk = 64;
constexpr auto kTlsShutdownTime = std::chrono::seconds(1);
constexpr size_t kLogChunkBytes = 64u << 10;
constexpr auto kLogPoll = std::chrono::milliseconds(100);

auto into(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

// Serves one connection. `Stream` is beast::tcp_stream, or TLS over it.
template <class Stream>
class Session {
 public:
  Session(SessionContext& context, Stream stream) : context_(context), stream_(std::move(stream)) {}

  asio::awaitable<void> run() {
    if (!co_await handshake()) co_return;
    while (!context_.stopping && co_await serve_one()) {
    }
    co_await shut_down_tls();
    error_code ignored;
    tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  }

 private:
  static constexpr bool kIsTls = !std::is_same_v<Stream, beast::tcp_stream>;

  beast::tcp_stream& tcp() { return beast::get_lowest_layer(stream_); }

  asio::awaitable<bool> handshake() {
    error_code error;
    if constexpr (kIsTls) {
      tcp().expires_after(context_.options.io_timeout);
      co_await stream_.async_handshake(asio::ssl::stream_base::server, into(error));
    }
    co_return !error;
  }

  // Lets a TLS client tell an orderly end from a broken connection.
  asio::awaitable<void> shut_down_tls() {
    if constexpr (kIsTls) {
      error_code ignored;
      tcp().expires_after(kTlsShutdownTime);
      co_await stream_.async_shutdown(into(ignored));
    }
    co_return;
  }

  // Serves one request. Returns false if the connection must end.
  asio::awaitable<bool> serve_one() {
    HttpParser parser;
    parser.header_limit(static_cast<uint32_t>(context_.options.header_bytes_max));
    parser.body_limit(context_.options.body_bytes_max);
    if (!co_await wait_for_request()) co_return false;
    error_code error;
    tcp().expires_after(context_.options.io_timeout);
    co_await http::async_read_header(stream_, buffer_, parser, into(error));
    if (error) co_return co_await refuse(error);
    bool health = is_health_path(target_of(parser));
    if (!health && !is_authorized(parser, context_.options.token)) {
      co_await send(make_response(unauthorized(), false));
      co_return false;
    }
    if (http::token_list(parser.get()[http::field::expect]).exists("100-continue")) {
      asio::const_buffer go_on("HTTP/1.1 100 Continue\r\n\r\n", 25);
      co_await asio::async_write(stream_, go_on, into(error));
    }
    co_await http::async_read(stream_, buffer_, parser, into(error));
    if (error) co_return co_await refuse(error);
    bool keep_alive = parser.get().keep_alive();
    if (health) {
      co_return co_await send(make_response(200, "ok", "text/plain", keep_alive)) && keep_alive;
    }
    ApiRequest request = to_api_request(parser);
    if (Api::is_watch(request)) co_return co_await serve_watch(request, keep_alive);
    if (Api::is_log(request)) co_return co_await serve_log(request, keep_alive);
    co_return co_await answer(context_.api.handle(request), keep_alive);
  }

  // Between requests a client may be silent for long; within a request it may not.
  asio::awaitable<bool> wait_for_request() {
    if (buffer_.size() > 0) co_return true;
    tcp().expires_after(context_.options.idle_timeout);
    error_code error;
    size_t bytes = co_await stream_.async_read_some(buffer_.prepare(4096), into(error));
    buffer_.commit(bytes);
    co_return !error && bytes > 0;
  }

  // Answers input that can't be served with the HTTP status for it, if there is one. Returns false.
  asio::awaitable<bool> refuse(error_code error) {
    ApiResponse answer;
    if (error == http::error::body_limit) {
      answer = too_large(context_.options.body_bytes_max);
    } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      answer = failure(431, "RequestHeaderFieldsTooLarge", "the request's headers are too large");
    } else if (error == beast::error::timeout) {
      co_return false;
    } else if (error.category() == make_error_code(http::error::bad_method).category() &&
               error != http::error::end_of_stream && error != http::error::partial_message) {
      answer = bad_request("not an HTTP request: " + error.message());
    } else {
      co_return false;
    }
    co_await send(make_response(answer, false));
    co_return false;
  }

  asio::awaitable<bool> answer(ApiResponse response, bool keep_alive) {
    co_return co_await send(make_response(std::move(response), keep_alive)) && keep_alive;
  }

  asio::awaitable<bool> send(HttpResponse response) {
    error_code error;
    tcp().expires_after(context_.options.io_timeout);
    co_await http::async_write(stream_, response, into(error));
    co_return !error;
  }

  asio::awaitable<bool> send_chunk(const std::string& text) {
    error_code error;
    tcp().expires_after(context_.options.io_timeout);
    co_await asio::async_write(stream_, http::make_chunk(asio::buffer(text)), into(error));
    co_return !error;
  }

  // Sends the head of a response whose body follows in chunks.
  asio::awaitable<bool> begin_stream(std::string_view type) {
    HttpHead head = make_stream_head(type);
    http::response_serializer<http::empty_body> serializer(head);
    error_code error;
    tcp().expires_after(context_.options.io_timeout);
    co_await http::async_write_header(stream_, serializer, into(error));
    co_return !error;
  }

  asio::awaitable<bool> end_stream() {
    error_code error;
    tcp().expires_after(context_.options.io_timeout);
    co_await asio::async_write(stream_, http::make_chunk_last(), into(error));
    co_return false;
  }

  asio::awaitable<bool> serve_watch(const ApiRequest& request, bool keep_alive) {
    if (context_.watchers.size() >= context_.options.watchers_max)
      co_return co_await answer(too_many("too many watches are open, close some"), keep_alive);
    auto opened = context_.api.open_watch(request);
    if (auto* error = std::get_if<ApiResponse>(&opened))
      co_return co_await answer(std::move(*error), keep_alive);
    Watch watch = std::get<Watch>(std::move(opened));
    if (!co_await begin_stream("application/json")) co_return false;
    if (!co_await stream_events(watch)) co_return false;
    co_return co_await end_stream();
  }

  // Returns true if the watch ended, false if the connection or the server did.
  asio::awaitable<bool> stream_events(Watch& watch) {
    using std::chrono::steady_clock;
    auto end = steady_clock::now() + std::chrono::seconds(watch.timeout_seconds);
    auto next_bookmark = steady_clock::now() + context_.options.bookmark_interval;
    Waker waker(context_, tcp());
    while (!waker.closed() && !context_.stopping) {
      std::string text;
      waker.arm();
      for (const Json& event : context_.api.next_events(watch, kEventsPerChunk))
        text += dump_json(event) + "\n";
      bool over = steady_clock::now() >= end;
      if (text.empty() && watch.bookmarks && !watch.ended &&
          (over || steady_clock::now() >= next_bookmark)) {
        text = dump_json(context_.api.bookmark(watch)) + "\n";
        next_bookmark = steady_clock::now() + context_.options.bookmark_interval;
      }
      if (!text.empty() && !co_await send_chunk(text)) co_return false;
      if (watch.ended || over) co_return true;
      if (text.empty()) co_await waker.wait_until(wake_time(end, next_bookmark, watch.bookmarks));
    }
    co_return false;
  }

  asio::awaitable<bool> serve_log(const ApiRequest& request, bool keep_alive) {
    auto opened = context_.api.open_log(request);
    if (auto* error = std::get_if<ApiResponse>(&opened))
      co_return co_await answer(std::move(*error), keep_alive);
    const LogRequest log = std::get<LogRequest>(std::move(opened));
    Result<LogFile> file = open_file(log);
    if (!file.ok()) co_return co_await answer(bad_request(file.error().message), keep_alive);
    if (!co_await begin_stream("text/plain")) co_return false;
    if (!co_await stream_log(log, *file)) co_return false;
    co_return co_await end_stream();
  }

  Result<LogFile> open_file(const LogRequest& log) const {
    if (context_.options.logs == nullptr) return not_found("this server has no logs");
    TRY_ASSIGN(std::string file,
               context_.options.logs->log_file(log.pod_uid, log.container, log.previous));
    return LogFile::open(file, {.tail_lines = log.tail_lines,
                                .since = log.since,
                                .limit_bytes = log.limit_bytes,
                                .timestamps = log.timestamps});
  }

  // Returns true if the whole log was sent, false if the connection or the server ended.
  asio::awaitable<bool> stream_log(const LogRequest& log, LogFile& file) {
    Waker waker(context_, tcp());
    while (!waker.closed() && !context_.stopping) {
      waker.arm();
      // Check before reading the file: once the container has stopped, nothing more is appended.
      const bool more = log.follow && context_.api.is_running(log);
      for (std::string text = file.read(kLogChunkBytes); !text.empty() && !waker.closed();
           text = file.read(kLogChunkBytes)) {
        if (!co_await send_chunk(text)) co_return false;
      }
      if (!more || file.is_over()) co_return !waker.closed();
      co_await waker.wait_until(std::chrono::steady_clock::now() + kLogPoll);
    }
    co_return false;
  }

  SessionContext& context_;
  Stream stream_;
  beast::flat_buffer buffer_{64u << 10};
};

}  // namespace

void SessionContext::wake_watchers() {
  for (asio::steady_timer* timer : watchers)
    timer->expires_at(asio::steady_timer::time_point::min());
}

namespace {

template <class Stream>
asio::awaitable<void> serve(SessionContext& context, Stream stream) {
  // Counts the connection, however the session ends.
  struct Counted {
    explicit Counted(SessionContext& context) : context(context) { ++context.connections; }
    ~Counted() { --context.connections; }
    SessionContext& context;
  } counted(context);
  Session<Stream> session(context, std::move(stream));
  co_await session.run();
}

}  // namespace

asio::awaitable<void> serve_connection(SessionContext& context, beast::tcp_stream stream) {
  if (context.tls == nullptr) return serve(context, std::move(stream));
  return serve(context, beast::ssl_stream<beast::tcp_stream>(std::move(stream), *context.tls));
}

}  // namespace lockstep::local
