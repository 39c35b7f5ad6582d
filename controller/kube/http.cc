#include "controller/kube/http.h"

#include <cpprest/http_client.h>
#include <pplx/threadpool.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <vector>

#include "common/base/log.h"
#include "controller/kube/cpprest_workarounds.h"
#include "controller/kube/line_framer.h"

namespace lockstep::kube {
namespace {

namespace rest = web::http;

// A watch's line holds one object, which the server limits to 3 MiB; '<', '>' and '&' take six
// bytes each on the wire.
constexpr size_t kLineBytesMax = 18u << 20;

// Returns the URL without its path, and the path without a slash at its end.
std::pair<std::string, std::string> split_url(const std::string& url) {
  const size_t scheme = url.find("://");
  const size_t host = scheme == std::string::npos ? 0 : scheme + 3;
  const size_t path = std::min(url.find_first_of("/?#", host), url.size());
  std::string prefix = url.substr(path, url.find_first_of("?#", path) - path);
  while (prefix.ends_with('/')) prefix.pop_back();
  return {url.substr(0, path), prefix};
}

// Returns "10.0.0.1" for "https://10.0.0.1:443", "::1" for "https://[::1]:443".
std::string host_of(const std::string& url) {
  std::string host = web::uri(url).host();
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

using Socket = boost::asio::ip::tcp::socket;

// Returns the URL's host if it is an address; nullopt if it is a name.
std::optional<boost::asio::ip::address> address_of(const std::string& url) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host_of(url), error);
  return error ? std::nullopt : std::make_optional(address);
}

web::web_proxy proxy_for(const std::string& url) {
  const web::uri uri(url);
  web::web_proxy proxy(uri);
  const std::string user = uri.user_info();
  if (const size_t colon = user.find(':'); colon != std::string::npos) {
    proxy.set_credentials(
        {web::uri::decode(user.substr(0, colon)), web::uri::decode(user.substr(colon + 1))});
  }
  return proxy;
}

rest::client::http_client_config config_for(const HttpServer& server,
                                            const std::shared_ptr<TlsShared>& shared) {
  rest::client::http_client_config config;
  config.set_timeout(kNoIdleTimeout);
  config.set_max_redirects(0);
  if (!server.proxy_url.empty()) config.set_proxy(proxy_for(server.proxy_url));
  const bool is_tls = server.url.starts_with("https:");
  const auto address = address_of(server.proxy_url.empty() ? server.url : server.proxy_url);
  config.set_nativehandle_options([is_tls, address](rest::client::native_handle handle) {
    if (is_tls) {
      open_and_tune(static_cast<boost::asio::ssl::stream<Socket&>*>(handle)->next_layer(), address);
    } else {
      open_and_tune(*static_cast<Socket*>(handle), address);
    }
  });
  if (!is_tls) return config;
  TlsOptions tls = server.tls;
  if (tls.server_name.empty()) tls.server_name = host_of(server.url);
  config.set_validate_certificates(tls.verify);
  config.set_tlsext_sni_enabled(false);  // configure_tls() does it
  config.set_ssl_context_callback([tls, shared](boost::asio::ssl::context& context) {
    const Status status = configure_tls(context.native_handle(), tls, shared);
    if (!status.ok()) throw std::runtime_error(status.error().message);
  });
  return config;
}

rest::http_request to_rest(const HttpRequest& request, const HttpServer& server,
                           const std::string& prefix) {
  rest::http_request out(request.method);
  out.set_request_uri(prefix + request.path_and_query);
  out.headers().add("User-Agent", server.user_agent);
  out.headers().add("Accept", request.accept);
  if (!request.authorization.empty()) {
    out.headers().add("Authorization", request.authorization);
  }
  add_fields(out.headers(), request.fields);
  if (!request.body.empty()) out.set_body(request.body, request.content_type);
  return out;
}

Error to_error(const std::exception& exception) {
  return unavailable(std::string("[http] ") + exception.what());
}

}  // namespace

// One request from start to end, shared by the network's threads and the loop's thread. The mutex
// guards the members that both use; the rest are the loop's. cpprestsdk's last callback for a
// request, even a cancelled one, may come at any later time from its threads, which end with the
// process. So this object may outlive the mailbox and the timers, and touches neither once it was
// abandoned.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  struct Options {
    bool is_stream = false;
    size_t reply_bytes_max = 0;
    size_t pending_bytes_max = 0;
    HttpStreamHandler handler{};
    std::shared_ptr<TlsShared> tls{};
  };

  Exchange(Mailbox& mailbox, loop::Timers& timers, Options options)
      : mailbox_(mailbox),
        timers_(timers),
        options_(std::move(options)),
        wants_bytes_(options_.handler.on_bytes != nullptr),
        framer_(kLineBytesMax) {}

  // `request` builds the request; an exception from it ends the exchange.
  void start(rest::client::http_client& client, Duration deadline,
             const std::function<rest::http_request()>& request) {
    deadline_ = timers_.after(deadline, [self = shared_from_this()] {
      self->deadline_.reset();
      self->finish(timed_out("[http] timed out before the reply was complete"));
    });
    try {
      send(client, request());
    } catch (const std::exception& exception) {
      post_end(to_error(exception));
    }
  }

  // Called on the loop's thread. No handler is called and nothing is posted afterwards.
  void abandon() {
    if (is_over_) return;
    is_over_ = true;
    if (deadline_) timers_.cancel(*deadline_);
    deadline_.reset();
    options_.handler = {};
    // Cancelling an exchange that has ended would close its connection, unless cpprestsdk has put
    // it back into its pool already.
    if (!has_ended()) cancel_.cancel();
    const std::lock_guard lock(mutex_);
    is_refused_ = true;
    is_abandoned_ = true;
    resume_locked();
  }

 private:
  enum class Mode { kUnknown, kLines, kBytes, kWhole };

  void send(rest::client::http_client& client, rest::http_request out) {
    auto buffer = std::make_shared<BodyBuffer>(
        [self = shared_from_this()](std::string_view piece) { return self->consume(piece); },
        [self = shared_from_this()] { self->refuse_size(); });
    out.set_response_stream(
        Concurrency::streams::ostream(Concurrency::streams::streambuf<uint8_t>(buffer)));
    client.request(out, cancel_.get_token())
        .then([self = shared_from_this()](rest::http_response response) {
          self->on_headers(response);
          return response.content_ready();
        })
        .then([self = shared_from_this()](pplx::task<rest::http_response> all) {
          try {
            all.get();
            self->post_end(self->whole_reply());
          } catch (const std::exception& exception) {
            self->post_end(self->what_went_wrong(exception));
          }
        });
  }

  // Called on the network's threads, from here on.
  void on_headers(const rest::http_response& response) {
    const std::lock_guard lock(mutex_);
    reply_.status = response.status_code();
    response.headers().match("Retry-After", reply_.retry_after);
    response.headers().match("Warning", reply_.warning);
    response.headers().match("Content-Type", reply_.content_type);
    mode_ = Mode::kWhole;
    if (options_.is_stream && reply_.status == rest::status_codes::OK) {
      mode_ = wants_bytes_ ? Mode::kBytes : Mode::kLines;
    }
    const std::string early = std::exchange(early_, {});
    if (!take_locked(early)) is_refused_ = true;
    if (pending_bytes_ < options_.pending_bytes_max || mode_ == Mode::kWhole) resume_locked();
  }

  void refuse_size() {
    const std::lock_guard lock(mutex_);
    is_refused_ = is_too_large_ = true;
  }

  pplx::task<void> consume(std::string_view piece) {
    const std::lock_guard lock(mutex_);
    if (mode_ == Mode::kUnknown) {
      early_ += piece;
      return wait_locked();
    }
    if (is_refused_ || !take_locked(piece)) {
      is_refused_ = true;
      return pplx::task_from_exception<void>(std::runtime_error("the reply was rejected"));
    }
    if (mode_ != Mode::kWhole && pending_bytes_ >= options_.pending_bytes_max) return wait_locked();
    return pplx::task_from_result();
  }

  pplx::task<void> wait_locked() {
    resume_.emplace();
    return pplx::task<void>(*resume_);
  }

  void resume_locked() {
    if (!resume_) return;
    const pplx::task_completion_event<void> resume = *resume_;
    resume_.reset();
    if (is_refused_) {
      resume.set_exception(std::runtime_error("the reply was rejected"));
    } else {
      resume.set();
    }
  }

  bool take_locked(std::string_view piece) {
    if (mode_ == Mode::kWhole) {
      if (piece.size() > options_.reply_bytes_max - reply_.body.size()) {
        is_too_large_ = true;
        return false;
      }
      reply_.body += piece;
      return true;
    }
    if (mode_ == Mode::kBytes) {
      if (piece.empty() || is_abandoned_) return true;
      pending_bytes_ += piece.size();
      mailbox_.post([self = shared_from_this(), bytes = std::string(piece)]() mutable {
        self->deliver(std::move(bytes));
      });
      return true;
    }
    std::vector<std::string> lines;
    if (!framer_.feed(piece, lines)) {
      is_too_large_ = true;
      return false;
    }
    if (lines.empty() || is_abandoned_) return true;
    size_t bytes = 0;
    for (const std::string& line : lines) bytes += line.size();
    pending_bytes_ += bytes;
    mailbox_.post([self = shared_from_this(), lines = std::move(lines), bytes]() mutable {
      self->deliver(std::move(lines), bytes);
    });
    return true;
  }

  Result<HttpReply> whole_reply() {
    const std::lock_guard lock(mutex_);
    if (is_too_large_) return invalid("[http] the reply is larger than allowed");
    if (mode_ == Mode::kLines && !framer_.rest().empty()) {
      return unavailable("[http] the stream ended in the middle of a line");
    }
    return std::move(reply_);
  }

  Error what_went_wrong(const std::exception& exception) {
    const std::string tls = options_.tls->report.take();
    options_.tls->sessions.forget();  // in case the server did not want to resume it
    const std::lock_guard lock(mutex_);
    if (is_too_large_) return invalid("[http] the reply is larger than allowed");
    return tls.empty() ? to_error(exception) : unavailable("[http] " + tls);
  }

  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return has_ended_;
  }

  void post_end(Result<HttpReply> result) {
    const std::lock_guard lock(mutex_);  // held while posting, so that abandon() waits for it
    has_ended_ = true;
    if (is_abandoned_) return;
    mailbox_.post([self = shared_from_this(), result = std::move(result)]() mutable {
      self->finish(std::move(result));
    });
  }

  // Called on the loop's thread, from here on.
  void deliver(std::vector<std::string> lines, size_t bytes) {
    if (!is_over_) {
      // A copy, since the call may abandon this and clear the handler.
      const auto on_lines = options_.handler.on_lines;
      on_lines(std::move(lines));
    }
    take_off(bytes);
  }

  void deliver(std::string bytes) {
    const size_t size = bytes.size();
    if (!is_over_) {
      const auto on_bytes = options_.handler.on_bytes;
      on_bytes(std::move(bytes));
    }
    take_off(size);
  }

  void take_off(size_t bytes) {
    const std::lock_guard lock(mutex_);
    pending_bytes_ -= bytes;
    if (pending_bytes_ < options_.pending_bytes_max) resume_locked();
  }

  void finish(Result<HttpReply> result) {
    if (is_over_) return;
    const auto on_end = std::move(options_.handler.on_end);
    abandon();
    on_end(std::move(result));
  }

  Mailbox& mailbox_;
  loop::Timers& timers_;
  Options options_;
  const bool wants_bytes_;
  std::optional<loop::Timers::Id> deadline_;
  bool is_over_ = false;
  pplx::cancellation_token_source cancel_;

  std::mutex mutex_;
  Mode mode_ = Mode::kUnknown;
  std::string early_;  // body that came before the status was known; at most one piece
  HttpReply reply_;
  LineFramer framer_;
  size_t pending_bytes_ = 0;
  bool is_refused_ = false;
  bool is_abandoned_ = false;
  bool has_ended_ = false;
  bool is_too_large_ = false;
  std::optional<pplx::task_completion_event<void>> resume_;
};

struct HttpClient::Impl {
  Impl(HttpServer to, Mailbox& mailbox, loop::Timers& timers)
      : mailbox(mailbox),
        timers(timers),
        server(std::move(to)),
        prefix(split_url(server.url).second),
        tls(std::make_shared<TlsShared>()),
        looked_at(timers.now()) {
    connect();
  }

  ~Impl() {
    for (const std::weak_ptr<Exchange>& exchange : exchanges) {
      if (const auto open = exchange.lock()) open->abandon();
    }
  }

  void connect() { client.emplace(split_url(server.url).first, config_for(server, tls)); }

  void look_for_certificate() {
    const TimePoint now = timers.now();
    if (now - looked_at < server.certificate_interval) return;
    looked_at = now;
    if (!reread_client_certificate(server.tls)) return;
    log_info("the client certificate changed; using the new one",
             {{"file", server.tls.certificate_file}});
    connect();
  }

  std::shared_ptr<Exchange> start(const HttpRequest& request, Exchange::Options options) {
    look_for_certificate();
    options.tls = tls;
    auto exchange = std::make_shared<Exchange>(mailbox, timers, std::move(options));
    std::erase_if(exchanges, [](const std::weak_ptr<Exchange>& old) { return old.expired(); });
    exchanges.push_back(exchange);
    exchange->start(*client, request.deadline, [&] { return to_rest(request, server, prefix); });
    return exchange;
  }

  Mailbox& mailbox;
  loop::Timers& timers;
  HttpServer server;
  const std::string prefix;
  const std::shared_ptr<TlsShared> tls;
  TimePoint looked_at;
  std::optional<rest::client::http_client> client;
  std::vector<std::weak_ptr<Exchange>> exchanges;  // may include ended ones
};

namespace {

class StreamHandle final : public HttpHandle {
 public:
  explicit StreamHandle(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~StreamHandle() override { exchange_->abandon(); }

 private:
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace

std::string bearer(const std::string& token) {
  return token.empty() ? "" : "Bearer " + token;
}

void start_http_threads(size_t threads) {
  crossplat::threadpool::initialize_with_threads(threads);
}

void exit_with_http_threads(int exit_code) {
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

HttpClient::HttpClient(HttpServer server, Mailbox& mailbox, loop::Timers& timers)
    : impl_(std::make_unique<Impl>(std::move(server), mailbox, timers)) {}

HttpClient::~HttpClient() = default;

void HttpClient::send(HttpRequest request, std::function<void(Result<HttpReply>)> done) {
  Exchange::Options options{.reply_bytes_max = request.reply_bytes_max,
                            .handler = {.on_lines = {}, .on_end = std::move(done)}};
  impl_->start(request, std::move(options));
}

void HttpClient::use_certificate(std::string certificate_pem, std::string key_pem) {
  impl_->server.tls.certificate_pem = std::move(certificate_pem);
  impl_->server.tls.key_pem = std::move(key_pem);
  impl_->connect();
}

std::unique_ptr<HttpHandle> HttpClient::stream(HttpRequest request, HttpStreamHandler handler,
                                               size_t pending_bytes_max) {
  Exchange::Options options{.is_stream = true,
                            .reply_bytes_max = request.reply_bytes_max,
                            .pending_bytes_max = pending_bytes_max,
                            .handler = std::move(handler)};
  return std::make_unique<StreamHandle>(impl_->start(request, std::move(options)));
}

}  // namespace lockstep::kube
