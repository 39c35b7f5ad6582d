#include "local/http/server.h"

#include <malloc.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "common/base/log.h"
#include "local/http/session.h"

namespace lockstep::local {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct ApiServer::Impl {
  Impl(Api& api, ApiServerOptions given)
      : options(std::move(given)), context{.api = api, .options = options, .watchers = {}} {}

  Status use_certificate();
  asio::awaitable<void> accept_connections();
  asio::awaitable<void> compact_history();
  void notify();

  const ApiServerOptions options;
  asio::ssl::context tls{asio::ssl::context::tls_server};
  SessionContext context;  // outlives the sessions, which `io` destroys
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  std::atomic<bool> notified = false;  // a wake-up of the watchers is pending
  uint16_t port = 0;
  std::thread thread;
};

Status ApiServer::Impl::use_certificate() {
  if (!options.certificate) return {};
  error_code error;
  tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                      asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                      asio::ssl::context::no_tlsv1_1,
                  error);
  if (!error) tls.use_certificate_chain(asio::buffer(options.certificate->certificate), error);
  if (!error)
    tls.use_private_key(asio::buffer(options.certificate->key), asio::ssl::context::pem, error);
  if (error) return invalid("[api server] the certificate can't be used: " + error.message());
  context.tls = &tls;
  return {};
}

asio::awaitable<void> ApiServer::Impl::accept_connections() {
  while (!context.stopping) {
    error_code error;
    tcp::socket socket(io);
    co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) co_return;
    if (error) {  // most likely out of file descriptors: let some connections end
      log_warning("can't accept a connection", {{"error", error.message()}});
      asio::steady_timer pause(io, std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    if (context.connections >= options.connections_max) continue;  // closed by its destructor
    socket.set_option(tcp::no_delay(true), error);
    socket.set_option(asio::socket_base::send_buffer_size(options.send_buffer_bytes), error);
    asio::co_spawn(io, serve_connection(context, boost::beast::tcp_stream(std::move(socket))),
                   asio::detached);
  }
}

// Returns the memory of compacted history to the system, so that the process shrinks again after
// load.
asio::awaitable<void> ApiServer::Impl::compact_history() {
  asio::steady_timer pause(io);
  error_code ignored;
  while (!context.stopping) {
    pause.expires_after(options.compact_interval);
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (context.api.compact()) malloc_trim(0);
  }
}

void ApiServer::Impl::notify() {
  if (notified.exchange(true)) return;
  asio::post(io, [this] {
    notified = false;
    context.wake_watchers();
  });
}

ApiServer::ApiServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<ApiServer>> ApiServer::start(Api& api, const ApiServerOptions& options) {
  auto impl = std::make_shared<Impl>(api, options);
  TRY(impl->use_certificate());
  error_code error;
  auto failed = [&](const char* what) {
    return unavailable("[api server] " + std::string(what) + " " + options.address + ":" +
                       std::to_string(options.port) + ": " + error.message());
  };
  tcp::endpoint endpoint(asio::ip::make_address(options.address, error), options.port);
  if (error) return failed("expected an IP address, found");
  impl->acceptor.open(endpoint.protocol(), error);
  if (error) return failed("can't open a socket for");
  impl->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  impl->acceptor.bind(endpoint, error);
  if (error) return failed("can't bind");
  impl->acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed("can't listen on");
  impl->port = impl->acceptor.local_endpoint().port();
  Impl* raw = impl.get();
  // The Api may outlive this server.
  api.on_change([weak = std::weak_ptr<Impl>(impl)] {
    if (auto alive = weak.lock()) alive->notify();
  });
  asio::co_spawn(impl->io, impl->accept_connections(), asio::detached);
  asio::co_spawn(impl->io, impl->compact_history(), asio::detached);
  impl->thread = std::thread([raw] { raw->io.run(); });
  return std::unique_ptr<ApiServer>(new ApiServer(std::move(impl)));
}

ApiServer::~ApiServer() {
  asio::post(impl_->io, [this] {
    impl_->context.stopping = true;
    impl_->io.stop();
  });
  impl_->thread.join();
}

uint16_t ApiServer::port() const {
  return impl_->port;
}

std::string ApiServer::url() const {
  return (impl_->options.certificate ? "https://" : "http://") + impl_->options.address + ":" +
         std::to_string(impl_->port);
}

}  // namespace lockstep::local
