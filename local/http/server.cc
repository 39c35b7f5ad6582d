#include "local/http/server.h"

#include <malloc.h>

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "common/http/server.h"
#include "local/http/routes.h"

namespace lockstep::local {
namespace {

http::ServerOptions server_options(const ApiServerOptions& options) {
  return {.header_bytes_max = options.header_bytes_max,
          .body_bytes_max = options.body_bytes_max,
          .connections_max = options.connections_max,
          .when_full = http::WhenFull::kEvictStranger,
          .send_buffer_bytes = options.send_buffer_bytes,
          .header_limit = options.io_timeout,
          .request_limit = options.io_timeout,
          .stranger_idle_limit = options.idle_timeout,
          .idle_limit = options.idle_timeout,
          .write_limit = options.io_timeout};
}

ApiRoutesOptions routes_options(const ApiServerOptions& options) {
  return {.token = options.token,
          .body_bytes_max = options.body_bytes_max,
          .streams_max = options.watchers_max,
          .logs = options.logs,
          .bookmark_interval = options.bookmark_interval};
}

// Returns the memory of compacted history to the system, so that the process shrinks again after
// load.
void compact_regularly(const std::stop_token& stop, Api& api, Duration interval) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    never.wait_for(lock, stop, interval, [] { return false; });
    if (!stop.stop_requested() && api.compact()) malloc_trim(0);
  }
}

}  // namespace

// Shared with the listener on the Api, which may run on another thread while the server ends.
struct ApiServer::Served {
  Served(Api& api, const ApiServerOptions& options) : routes(api, routes_options(options)) {}

  ApiRoutes routes;
  std::unique_ptr<http::Server> server;
};

Result<std::unique_ptr<ApiServer>> ApiServer::start(Api& api, const ApiServerOptions& options) {
  http::ServerOptions serving = server_options(options);
  if (options.certificate) {
    TRY_ASSIGN(serving.tls, http::make_tls_context(*options.certificate));
  }
  auto served = std::make_shared<Served>(api, options);
  auto server = http::Server::start(options.address, options.port, served->routes, serving);
  if (!server.ok()) return unavailable("[api server] " + server.error().message);
  served->server = *std::move(server);
  api.on_change([weak = std::weak_ptr<Served>(served)] {
    if (const auto alive = weak.lock()) alive->server->wake_streams();
  });
  return std::unique_ptr<ApiServer>(new ApiServer(api, options, std::move(served)));
}

ApiServer::ApiServer(Api& api, const ApiServerOptions& options, std::shared_ptr<Served> served)
    : options_(options),
      served_(std::move(served)),
      compaction_([&api, interval = options.compact_interval](const std::stop_token& stop) {
        compact_regularly(stop, api, interval);
      }) {}

ApiServer::~ApiServer() {
  served_->server->stop(Duration::zero());
}

uint16_t ApiServer::port() const {
  return static_cast<uint16_t>(served_->server->port());
}

std::string ApiServer::url() const {
  return (options_.certificate ? "https://" : "http://") + options_.address + ":" +
         std::to_string(port());
}

}  // namespace lockstep::local
