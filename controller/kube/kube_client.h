#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "controller/kube/credentials.h"
#include "controller/kube/http.h"
#include "controller/kube/rate_limiter.h"
#include "controller/kube/request_metrics.h"
#include "controller/loop/api_client.h"

namespace lockstep {

struct KubeClientOptions {
  HttpServer server{};
  CredentialOptions credentials{};
  RateLimiter::Options rate{};
  Duration deadline = std::chrono::seconds(30);      // of a request
  Duration watch_margin = std::chrono::seconds(15);  // beyond a watch's timeoutSeconds
  size_t reply_bytes_max = 32u << 20;                // a page of objects
  size_t open_max = 16;                              // requests that wait for their answer
  Duration hold_max = std::chrono::minutes(1);       // for one wish of the server's
};

// The path and query of a request, percent-encoded.
std::string request_path(const ApiRequest& request);

// Retry-After in seconds or as a date; at most five minutes; 0 where there is none.
Duration retry_after(const std::string& header, WallTime now);

// What an HTTP reply means. `objects_at`: as in ObjectLimits.
ApiReply to_api_reply(const Result<HttpReply>& reply, WallTime now, int objects_at);

// The Kubernetes API over HTTP. Leases go past the rate limit: a leader that is busy must not lose
// its lease for it. Watches have connections of their own. At most `open_max` other requests are
// open at once, the next ones wait for their answers: each has a connection for itself, and to
// begin one costs some 30 ms of CPU, since every one reads the system's certificates. Nor does one
// go out while a server that refused one of them has asked for time (Retry-After). An object that
// is too deep or too large comes without what makes it so (left_out() in common/base/json.h), and
// others' objects come whole. What the server warns of (a deprecated version of the API, a field
// that it doesn't know) is logged, the same words once.
class KubeClient final : public ApiClient {
 public:
  // References must outlive it.
  KubeClient(KubeClientOptions options, Mailbox& mailbox, Timers& timers, const Clock& clock);

  void send(ApiRequest request, Done done) override;
  std::unique_ptr<WatchHandle> watch(WatchRequest request, WatchHandler handler) override;

  const RequestMetrics& metrics() const { return metrics_; }
  // For the rate limit, or for others' answers.
  size_t waiting() const { return limiter_.waiting(); }

 private:
  void send_in_turn(ApiRequest request, Done done);
  void send_now(ApiRequest request, Done done, bool may_retry);
  // Of the next request; also sees to its client certificate.
  const std::string& authorization();
  void tell_warning(const std::string& warning);

  KubeClientOptions options_;
  Timers& timers_;
  Credentials credentials_;
  RateLimiter limiter_;
  HttpClient requests_;
  HttpClient watches_;
  RequestMetrics metrics_;
  std::set<std::string> told_warnings_;
};

}  // namespace lockstep
