#include "controller/monitor/probes.h"

#include <charconv>
#include <string_view>

#include "common/metrics/exposition.h"

namespace lockstep::monitor {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";

http::Response text(unsigned status, std::string body) {
  return {.status = status, .body = std::move(body) + "\n", .content_type = kText};
}

std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find('?'));
}

}  // namespace

http::Admission Probes::authorize(const http::Head& head) const {
  const std::string_view path = path_of(head.target);
  if (path != "/healthz" && path != "/readyz" && path != "/metrics") {
    return {.refusal = text(404, "expected /healthz, /readyz or /metrics")};
  }
  if (head.method == "GET" || head.method == "HEAD") return {};
  http::Response refusal = text(405, "expected GET or HEAD");
  refusal.fields = {{"Allow", "GET, HEAD"}};
  return {.refusal = std::move(refusal)};
}

http::Response Probes::error(unsigned status, const std::string& message) const {
  return text(status, message);
}

void Probes::handle(http::Request request, Respond respond) {
  sources_.post(
      [this, path = std::string(path_of(request.head.target)), respond = std::move(respond)] {
        if (path == "/healthz") return respond(text(200, "ok"));
        if (path == "/metrics") {
          return respond({.body = sources_.metrics(), .content_type = kExpositionContentType});
        }
        const Readiness readiness = sources_.readiness();
        respond(readiness.is_ready ? text(200, "ok") : text(503, readiness.why_not));
      });
}

Result<ListenAddress> listen_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  ListenAddress address;
  const char* end = text.data() + text.size();
  const char* begin = colon == std::string::npos ? end : text.data() + colon + 1;
  const auto [stop, error] = std::from_chars(begin, end, address.port);
  if (error != std::errc() || stop != end || address.port < 0 || address.port > 65535) {
    return invalid(text + ": expected an address and a port, such as 127.0.0.1:8080 or :8080");
  }
  address.ip = text.substr(0, colon);
  if (address.ip.starts_with('[') && address.ip.ends_with(']')) {
    address.ip = address.ip.substr(1, address.ip.size() - 2);
  }
  return address;
}

Result<std::unique_ptr<http::Server>> serve_probes(const ListenAddress& address, Probes& probes) {
  if (!address.ip.empty()) return http::Server::start(address.ip, address.port, probes);
  Result<std::unique_ptr<http::Server>> both = http::Server::start("::", address.port, probes);
  if (both.ok() || both.error().code == Code::kConflict) return both;
  return http::Server::start("0.0.0.0", address.port, probes);
}

}  // namespace lockstep::monitor
