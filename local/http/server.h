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
  // HTTPS with it; else plain HTTP. kubectl sends a token to nobody but HTTPS servers.
  std::optional<CertificatePem> certificate = std::nullopt;
  size_t body_bytes_max = 3u << 20;
  size_t header_bytes_max = 16u << 10;
  size_t connections_max = 512;  // more are closed at once, without an answer
  size_t watchers_max = 256;     // of them watches and logs that are followed
  // What a connection's kernel buffer may hold: who does not read is noticed by then.
  int send_buffer_bytes = 256 << 10;
  const PodLogs* logs = nullptr;  // outlives the server; null: `log` finds none
  // A request must be whole within this time, a response or a watch event be taken within it.
  Duration io_timeout = std::chrono::seconds(30);
  Duration idle_timeout = std::chrono::seconds(300);  // between requests of one connection
  Duration bookmark_interval = std::chrono::seconds(60);
  Duration compact_interval = std::chrono::seconds(5);  // Api::compact
};

// HTTP/1.1, over TLS or not, in front of an Api: one thread of its own, bounded in headers, bodies,
// connections and time. Watches are chunked; one that doesn't take its events in time is cut off.
class ApiServer {
 public:
  // Listens when it returns. `api` outlives the server. kUnavailable: the address can't
  // be had; kInvalid: the certificate can't be read.
  static Result<std::unique_ptr<ApiServer>> start(Api& api, const ApiServerOptions& options);
  // Closes every connection and joins the thread.
  ~ApiServer();

  uint16_t port() const;
  // "http://127.0.0.1:41234", "https://..."
  std::string url() const;

 private:
  struct Impl;
  explicit ApiServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep::local
