#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/http/tls.h"
#include "local/http/certificate.h"
#include "local/store/api.h"
#include "local/store/pod_logs.h"

namespace lockstep::local {

struct ApiServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: the system chooses
  std::string token;  // every request but /healthz, /livez and /readyz needs it
  // Serves HTTPS if set, else plain HTTP. kubectl sends its token to HTTPS servers only.
  std::optional<http::CertificatePem> certificate = std::nullopt;
  size_t body_bytes_max = 3u << 20;
  size_t header_bytes_max = 16u << 10;
  // When all are taken, a new one evicts the oldest that has not sent the token. If all have, the
  // new one is closed.
  size_t connections_max = 512;
  size_t watchers_max = 256;  // streams (watches, logs) above which a watch gets a 429
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

// An Api behind an HTTP server (common/http), and the regular compaction of its history. The server
// and the compaction have one thread each.
class ApiServer {
 public:
  // Listens when it returns. `api` must outlive the server. kUnavailable: the address can't be
  // bound; kInvalid: the certificate can't be used.
  static Result<std::unique_ptr<ApiServer>> start(Api& api, const ApiServerOptions& options);
  // Closes every connection and joins the threads.
  ~ApiServer();

  uint16_t port() const;
  // Returns "http://127.0.0.1:41234", "https://...".
  std::string url() const;

 private:
  struct Served;
  ApiServer(Api& api, const ApiServerOptions& options, std::shared_ptr<Served> served);

  const ApiServerOptions options_;
  const std::shared_ptr<Served> served_;
  std::jthread compaction_;
};

}  // namespace lockstep::local
