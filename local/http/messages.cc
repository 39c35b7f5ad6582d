#include "local/http/messages.h"

#include <utility>

namespace lockstep::local {
namespace {

// The text of a warning is a quoted string. Source: RFC 7234, 5.5.
std::string warning_value(const std::string& warning) {
  std::string value = "299 - \"";
  for (const char c : warning) {
    if (c == '"' || c == '\\') value += '\\';
    value += c;
  }
  return value + "\"";
}

}  // namespace

ApiRequest to_api_request(http::Request request) {
  const http::Head& head = request.head;
  return {.method = head.method,
          .target = head.target,
          .content_type = std::string(head.field("Content-Type")),
          .body = std::move(request.body),
          .accept = std::string(head.field("Accept")),
          .user_agent = std::string(head.field("User-Agent"))};
}

http::Response make_response(std::string_view type) {
  return {.content_type = std::string(type), .cache_control = "no-cache, private"};
}

http::Response to_http_response(ApiResponse answer) {
  const bool raw = !answer.raw_type.empty();
  http::Response response = make_response(raw ? answer.raw_type : "application/json");
  response.status = static_cast<unsigned>(answer.code);
  response.body = raw ? std::move(answer.raw) : dump_json(answer.body);
  if (answer.code == 429 || answer.code == 503) response.fields.push_back({"Retry-After", "1"});
  for (const std::string& warning : answer.warnings)
    response.fields.push_back({"Warning", warning_value(warning)});
  return response;
}

bool is_health_path(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  return path == "/healthz" || path == "/livez" || path == "/readyz";
}

}  // namespace lockstep::local
