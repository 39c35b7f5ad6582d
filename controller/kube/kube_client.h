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

namespace lockstep::kube {

struct KubeClientOptions {
  HttpServer server{};
  CredentialOptions credentials{};
  RateLimiter::Options rate{};
  Duration deadline = std::chrono::seconds(30);      // for a request
  Duration watch_margin = std::chrono::seconds(15);  // beyond a watch's timeoutSeconds
  size_t reply_bytes_max = 32u << 20;                // a page of objects
  size_t open_max = 16;                              // requests that wait for their answer
  Duration hold_max = std::chrono::minutes(1);       // longest pause for one Retry-After
};

// Returns the path and query of a request, percent-encoded.
std::string request_path(const loop::ApiRequest& request);

// Tells where the objects are in a reply.
struct ReplyShape {
  std::string_view spec_kept{};  // as in ResourceType
  int objects_at = 0;            // as in ObjectLimits
};

// Interprets an HTTP reply.
loop::ApiReply to_api_reply(const Result<HttpReply>& reply, WallTime now, const ReplyShape& shape);

// The Kubernetes API over HTTP.
// - Leases bypass the rate limit, so that a busy leader does not lose its lease because of it.
//   Watches have their own connections.
// - At most `open_max` other requests are open at a time; the next ones wait until one is answered.
//   Each open request needs a connection, which costs both sides a TLS handshake.
// - No request is sent while a server that refused one has asked for time (Retry-After).
// - An object that is too deep or too large comes without the part that makes it so (left_out() in
//   common/base/json.h). Others come without managedFields, which a write then leaves unchanged,
//   and without what ResourceType::spec_kept leaves out.
// - Warnings from the server (a deprecated version of the API, an unknown field) are logged, each
//   text once.
class KubeClient final : public loop::ApiClient {
 public:
  // References must outlive it.
  KubeClient(KubeClientOptions options, Mailbox& mailbox, loop::Timers& timers, const Clock& clock);

  void send(loop::ApiRequest request, Done done) override;
  std::unique_ptr<loop::WatchHandle> watch(loop::WatchRequest request,
                                           loop::WatchHandler handler) override;

  const RequestMetrics& metrics() const { return metrics_; }
  // Number of requests that wait for the rate limit, or for others' answers.
  size_t waiting() const { return limiter_.waiting(); }

 private:
  void send_in_turn(loop::ApiRequest request, Done done);
  void send_now(loop::ApiRequest request, Done done, bool may_retry);
  // Returns the authorization of the next request. Also switches to a new client certificate.
  const std::string& authorization();
  void tell_warning(const std::string& warning);

  KubeClientOptions options_;
  loop::Timers& timers_;
  Credentials credentials_;
  RateLimiter limiter_;
  HttpClient requests_;
  HttpClient watches_;
  RequestMetrics metrics_;
  std::set<std::string> told_warnings_;
};

}  // namespace lockstep::kube
