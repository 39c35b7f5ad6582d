#include "local/http/messages.h"

#include "common/base/sha256.h"

namespace lockstep::local {
namespace {

namespace http = boost::beast::http;

constexpr char kNoCache[] = "no-cache, private";

std::string text(boost::string_view view) {
  return std::string(view.data(), view.size());
}

boost::string_view view(std::string_view text) {
  return {text.data(), text.size()};
}

// The text of a warning is a quoted string. Source: RFC 7234, 5.5.
std::string warning_value(const std::string& warning) {
  std::string value = "299 - \"";
  for (const char c : warning) {
    if (c == '"' || c == '\\') value += '\\';
    const bool is_control = static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    value += is_control ? ' ' : c;
  }
  return value + "\"";
}

}  // namespace

HttpResponse make_response(int code, std::string body, std::string_view type, bool keep_alive) {
  HttpResponse response;
  response.version(11);
  response.result(static_cast<unsigned>(code));
  response.set(http::field::content_type, view(type));
  response.set(http::field::cache_control, kNoCache);
  response.body() = std::move(body);
  response.keep_alive(keep_alive);
  response.prepare_payload();
  return response;
}

HttpResponse make_response(ApiResponse answer, bool keep_alive) {
  const bool raw = !answer.raw_type.empty();
  HttpResponse response =
      make_response(answer.code, raw ? std::move(answer.raw) : dump_json(answer.body),
                    raw ? answer.raw_type : "application/json", keep_alive);
  if (answer.code == 429 || answer.code == 503) response.set(http::field::retry_after, "1");
  for (const std::string& warning : answer.warnings)
    response.insert(http::field::warning, warning_value(warning));
  return response;
}

HttpHead make_stream_head(std::string_view type) {
  HttpHead head;
  head.version(11);
  head.result(http::status::ok);
  head.set(http::field::content_type, view(type));
  head.set(http::field::cache_control, kNoCache);
  head.chunked(true);
  return head;
}

ApiRequest to_api_request(const HttpParser& parser) {
  const auto& message = parser.get();
  return {.method = text(message.method_string()),
          .target = text(message.target()),
          .content_type = text(message[http::field::content_type]),
          .body = message.body(),
          .accept = text(message[http::field::accept]),
          .user_agent = text(message[http::field::user_agent])};
}

std::string target_of(const HttpParser& parser) {
  return text(parser.get().target());
}

bool is_health_path(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  return path == "/healthz" || path == "/livez" || path == "/readyz";
}

bool is_authorized(const HttpParser& parser, const std::string& token) {
  const std::string given = text(parser.get()[http::field::authorization]);
  constexpr std::string_view kScheme = "Bearer ";
  if (!given.starts_with(kScheme)) return false;
  // Compare digests, which have equal lengths, so that timing reveals nothing about the token.
  return equal_constant_time(hex(sha256(given.substr(kScheme.size()))), hex(sha256(token)));
}

}  // namespace lockstep::local
