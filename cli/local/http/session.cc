#include "cli/local/http/session.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/ssl.hpp>
#include <optional>
#include <type_traits>

#include "common/base/sha256.h"

namespace lockstep::local {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr size_t kEventsPerChunk = 64;
constexpr auto kGoodbyeTime = std::chrono::seconds(1);

auto into(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

using Parser = http::request_parser<http::string_body>;
using Response = http::response<http::string_body>;

bool is_health_path(std::string_view target) {
  std::string_view path = target.substr(0, target.find('?'));
  return path == "/healthz" || path == "/livez" || path == "/readyz";
}

bool is_authorized(const Parser& parser, const std::string& token) {
  auto value = parser.get()[http::field::authorization];
  std::string_view given(value.data(), value.size());
  constexpr std::string_view kScheme = "Bearer ";
  if (!given.starts_with(kScheme)) return false;
  // Digests are of one length, so that nothing is learned from the time.
  return equal_constant_time(hex(sha256(given.substr(kScheme.size()))), hex(sha256(token)));
}

Response make_response(int code, std::string body, std::string_view type, bool keep_alive) {
  Response response;
  response.version(11);
  response.result(static_cast<unsigned>(code));
  response.set(http::field::content_type, boost::string_view(type.data(), type.size()));
  response.set(http::field::cache_control, "no-cache, private");
  response.body() = std::move(body);
  response.keep_alive(keep_alive);
  response.prepare_payload();
  return response;
}

Response make_response(const ApiResponse& answer, bool keep_alive) {
  Response response =
      make_response(answer.code, dump_json(answer.body), "application/json", keep_alive);
  if (answer.code == 429 || answer.code == 503) response.set(http::field::retry_after, "1");
  return response;
}

ApiRequest to_api_request(const Parser& parser) {
  const auto& message = parser.get();
  auto text = [](boost::string_view view) { return std::string(view.data(), view.size()); };
  return {text(message.method_string()), text(message.target()),
          text(message[http::field::content_type]), message.body()};
}

// `Stream`: beast::tcp_stream, or TLS over it.
template <class Stream>
class Session {
 public:
  Session(SessionContext& context, Stream stream) : context_(context), stream_(std::move(stream)) {}

  asio::awaitable<void> run() {
    if (!co_await handshake()) co_return;
    while (!context_.stopping && co_await serve_one()) {
    }
    co_await say_goodbye();
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

  // TLS tells an end from a connection that was cut.
  asio::awaitable<void> say_goodbye() {
    if constexpr (kIsTls) {
      error_code ignored;
      tcp().expires_after(kGoodbyeTime);
      co_await stream_.async_shutdown(into(ignored));
    }
    co_return;
  }

  // One request and its response; false ends the connection.
  asio::awaitable<bool> serve_one() {
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(context_.options.header_bytes_max));
    parser.body_limit(context_.options.body_bytes_max);
    if (!co_await wait_for_request()) co_return false;
    error_code error;
    tcp().expires_after(context_.options.io_timeout);
    co_await http::async_read_header(stream_, buffer_, parser, into(error));
    if (error) co_return co_await refuse(error);
    std::string target(parser.get().target().data(), parser.get().target().size());
    bool health = is_health_path(target);
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
    if (Api::is_watch(request)) co_return co_await serve_watch(request);
    co_return co_await send(make_response(context_.api.handle(request), keep_alive)) && keep_alive;
  }

  // Between requests a client may be silent for long, within one it may not.
  asio::awaitable<bool> wait_for_request() {
    if (buffer_.size() > 0) co_return true;
    tcp().expires_after(context_.options.idle_timeout);
    error_code error;
    size_t bytes = co_await stream_.async_read_some(buffer_.prepare(4096), into(error));
    buffer_.commit(bytes);
    co_return !error && bytes > 0;
  }

  // What came is not a request that will be served: say so where HTTP has a word for it.
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

  asio::awaitable<bool> send(Response response) {
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

  asio::awaitable<bool> serve_watch(const ApiRequest& request) {
    auto opened = context_.api.open_watch(request);
    if (auto* error = std::get_if<ApiResponse>(&opened)) {
      bool sent = co_await send(make_response(*error, true));
      co_return sent;
    }
    Watch watch = std::get<Watch>(std::move(opened));
    http::response<http::empty_body> head;
    head.version(11);
    head.result(http::status::ok);
    head.set(http::field::content_type, "application/json");
    head.set(http::field::cache_control, "no-cache, private");
    head.chunked(true);
    http::response_serializer<http::empty_body> serializer(head);
    error_code error;
    tcp().expires_after(context_.options.io_timeout);
    co_await http::async_write_header(stream_, serializer, into(error));
    if (error) co_return false;
    bool ended = co_await stream_events(watch);
    if (ended) co_await asio::async_write(stream_, http::make_chunk_last(), into(error));
    co_return false;
  }

  // True: the watch came to its end; false: the connection did.
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
      if (text.empty()) co_await waker.wait_until(std::min(end, next_bookmark));
    }
    co_return false;
  }

  // Wakes a watch when there are changes, or its client has gone.
  class Waker {
   public:
    Waker(SessionContext& context, beast::tcp_stream& stream)
        : context_(context), shared_(std::make_shared<Shared>(stream.get_executor())) {
      context_.watchers.insert(&shared_->timer);
      stream.expires_never();
      asio::co_spawn(stream.get_executor(), notice_end(stream.socket(), shared_), asio::detached);
    }
    ~Waker() {
      context_.watchers.erase(&shared_->timer);
      shared_->abandoned = true;
    }
    bool closed() const { return shared_->closed; }
    // From here on a wake-up is not lost, even if it comes before wait_until.
    void arm() { shared_->timer.expires_at(asio::steady_timer::time_point::max()); }
    asio::awaitable<void> wait_until(std::chrono::steady_clock::time_point until) {
      error_code ignored;
      // wake_watchers moved the expiry into the past if something happened since arm().
      if (shared_->timer.expiry() == asio::steady_timer::time_point::max() && !shared_->closed)
        shared_->timer.expires_at(until);
      co_await shared_->timer.async_wait(into(ignored));
    }

   private:
    struct Shared {
      explicit Shared(asio::any_io_executor executor) : timer(executor) {}
      asio::steady_timer timer;
      bool closed = false;
      bool abandoned = false;
    };

    static asio::awaitable<void> notice_end(asio::ip::tcp::socket& socket,
                                            std::shared_ptr<Shared> shared) {
      error_code error;
      // A client has nothing to say during a watch; what it sends is its end.
      co_await socket.async_wait(asio::ip::tcp::socket::wait_read, into(error));
      if (shared->abandoned) co_return;
      shared->closed = true;
      shared->timer.expires_at(asio::steady_timer::time_point::min());
    }

    SessionContext& context_;
    std::shared_ptr<Shared> shared_;
  };

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
  ++context.connections;
  {
    Session<Stream> session(context, std::move(stream));
    co_await session.run();
  }
  --context.connections;
}

}  // namespace

asio::awaitable<void> serve_connection(SessionContext& context, beast::tcp_stream stream) {
  if (context.tls == nullptr) return serve(context, std::move(stream));
  return serve(context, beast::ssl_stream<beast::tcp_stream>(std::move(stream), *context.tls));
}

}  // namespace lockstep::local
