#pragma once

#include <memory>
#include <string>

#include "common/http/server.h"
#include "local/http/log_file.h"
#include "local/store/api.h"
#include "local/store/pod_logs.h"

namespace lockstep::local {

struct ApiRoutesOptions {
  std::string token;  // every request but /healthz, /livez and /readyz needs it
  size_t body_bytes_max = 0;
  size_t streams_max = 0;         // open streams (watches, logs) above which a watch gets a 429
  const PodLogs* logs = nullptr;  // outlives the routes; null: every `log` request fails
  Duration bookmark_interval{};   // between the bookmarks of a silent watch
};

// Maps HTTP requests to an Api: checks the token, and turns watches and logs into streams.
class ApiRoutes final : public http::Handler {
 public:
  // `api` must outlive the routes.
  ApiRoutes(Api& api, ApiRoutesOptions options);

  http::Admission authorize(const http::Head& head) const override;
  void handle(http::Request request, Respond respond) override;
  // Answers with a Status, as Kubernetes does.
  http::Response error(unsigned status, const std::string& message) const override;

 private:
  http::Response open_watch(const ApiRequest& request);
  http::Response open_log(const ApiRequest& request);
  Result<LogFile> open_file(const LogRequest& log) const;

  Api& api_;
  const ApiRoutesOptions options_;
  std::shared_ptr<void> streams_;  // every open stream holds a copy, which counts it
};

}  // namespace lockstep::local
