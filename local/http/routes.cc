#include "local/http/routes.h"

#include <utility>
#include <variant>

#include "common/http/bearer_token.h"
#include "local/http/log_stream.h"
#include "local/http/messages.h"
#include "local/http/watch_stream.h"

namespace lockstep::local {

ApiRoutes::ApiRoutes(Api& api, ApiRoutesOptions options)
    : api_(api), options_(std::move(options)), streams_(std::make_shared<char>()) {}

http::Admission ApiRoutes::authorize(const http::Head& head) const {
  if (http::has_bearer_token(head, options_.token))
    return {.body_bytes_max = options_.body_bytes_max, .authenticated = true};
  if (is_health_path(head.target)) return {};
  http::Response refusal = to_http_response(unauthorized());
  refusal.keeps_open = false;
  return {.refusal = std::move(refusal)};
}

http::Response ApiRoutes::error(unsigned status, const std::string& message) const {
  switch (status) {
    case 413:
      return to_http_response(too_large(options_.body_bytes_max));
    case 431:
      return to_http_response(
          failure(431, "RequestHeaderFieldsTooLarge", "the request's headers are too large"));
    default:
      return to_http_response(bad_request(message));
  }
}

void ApiRoutes::handle(http::Request request, Respond respond) {
  if (is_health_path(request.head.target)) {
    http::Response healthy = make_response("text/plain");
    healthy.body = "ok";
    return respond(std::move(healthy));
  }
  const ApiRequest asked = to_api_request(std::move(request));
  if (Api::is_watch(asked)) return respond(open_watch(asked));
  if (Api::is_log(asked)) return respond(open_log(asked));
  respond(to_http_response(api_.handle(asked)));
}

http::Response ApiRoutes::open_watch(const ApiRequest& request) {
  const auto open = static_cast<size_t>(streams_.use_count() - 1);
  if (open >= options_.streams_max)
    return to_http_response(too_many("too many watches are open, close some"));
  auto opened = api_.open_watch(request);
  if (auto* error = std::get_if<ApiResponse>(&opened)) return to_http_response(std::move(*error));
  http::Response response = make_response("application/json");
  response.stream = std::make_shared<WatchStream>(api_, std::get<Watch>(std::move(opened)),
                                                  options_.bookmark_interval, streams_);
  return response;
}

http::Response ApiRoutes::open_log(const ApiRequest& request) {
  auto opened = api_.open_log(request);
  if (auto* error = std::get_if<ApiResponse>(&opened)) return to_http_response(std::move(*error));
  LogRequest log = std::get<LogRequest>(std::move(opened));
  Result<LogFile> file = open_file(log);
  if (!file.ok()) return to_http_response(bad_request(file.error().message));
  http::Response response = make_response("text/plain");
  response.stream = std::make_shared<LogStream>(api_, std::move(log), *std::move(file), streams_);
  return response;
}

Result<LogFile> ApiRoutes::open_file(const LogRequest& log) const {
  if (options_.logs == nullptr) return not_found("this server has no logs");
  TRY_ASSIGN(std::string file, options_.logs->log_file(log.pod_uid, log.container, log.previous));
  return LogFile::open(file, {.tail_lines = log.tail_lines,
                              .since = log.since,
                              .limit_bytes = log.limit_bytes,
                              .timestamps = log.timestamps});
}

}  // namespace lockstep::local
