#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "local/http/certificate.h"
#include "local/store/api.h"
#include "local/store/pod_logs.h"

namespace lockstep::local {

struct ApiServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: the system chooses
  std::string token;  // every request but /healthz, /livez and /readyz needs it
  // Serves HTTPS if set, else plain HTTP. kubectl sends its token to HTTPS servers only.
  std::optional<CertificatePem> certificate = std::nullopt;
  size_t body_bytes_max = 3u << 20;
  size_t header_bytes_max = 16u << 10;
  size_t connections_max = 512;  // more are closed immediately, without a response
  size_t watchers_max = 256;     // streams (watches, logs) above which a watch gets a 429
  // Size of a connection's kernel send buffer. A client that does not read is noticed once it is
  // full.
  int send_buffer_bytes = 256 << 10;
  const PodLogs* logs = nullptr;  // outlives the server; null: every `log` request fails
  // Limit for receiving a whole request, and for the client to accept a response or a watch event.
  Duration io_timeout = std::chrono::seconds(30);
  Duration idle_timeout = std::chrono::seconds(300);  // between requests on one connection
  Duration bookmark_interval = std::chrono::seconds(60);
  Duration compact_interval = std::chrono::seconds(5);  // how often Api::compact runs
};

// An HTTP/1.1 server, with or without TLS, in front of an Api. Runs in its own thread. Limits
// headers, bodies, connections and time. Watches are chunked; a client that does not accept its
// events in time is disconnected.
class ApiServer {
 public:
  // Listens when it returns. `api` must outlive the server. kUnavailable: the address can't be
  // bound; kInvalid: the certificate can't be used.
  static Result<std::unique_ptr<ApiServer>> start(Api& api, const ApiServerOptions& options);
  // Closes every connection and joins the thread.
  ~ApiServer();

  uint16_t port() const;
  // Returns "http://127.0.0.1:41234", "https://...".
  std::string url() const;

 private:
  struct Impl;
  explicit ApiServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep::local
