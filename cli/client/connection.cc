#include "cli/client/connection.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "common/base/version.h"
#include "controller/kube/kube_client.h"

namespace lockstep::cli {
namespace {

constexpr size_t kReplyBytesMax = 256u << 20;
constexpr JsonLimits kReplyLimits{
    .bytes_max = kReplyBytesMax, .depth_max = 64, .values_max = 20'000'000};

// Prints the text of every `299 - "text"` in the header.
void print_warnings(const std::string& header) {
  size_t at = 0;
  while ((at = header.find('"', at)) != std::string::npos) {
    std::string text;
    size_t i = at + 1;
    for (; i < header.size() && header[i] != '"'; ++i) {
      if (header[i] == '\\' && i + 1 < header.size()) ++i;
      text += header[i];
    }
    std::fprintf(stderr, "Warning: %s\n", text.c_str());
    at = i + 1;
  }
}

Error server_error(int code, const std::string& body) {
  const Result<Json> status = parse_json(body);
  const bool is_status = status.ok() && string_or(*status, "kind", "") == "Status";
  const std::string reason = is_status ? string_or(*status, "reason", "") : "";
  std::string message = is_status ? string_or(*status, "message", "") : body.substr(0, 300);
  if (message.empty()) message = "the server answered with HTTP " + std::to_string(code);
  message =
      (reason.empty() ? "Error from server: " : "Error from server (" + reason + "): ") + message;
  if (code == 404) return not_found(message);
  if (code == 409) return conflict(message);
  return code >= 400 && code < 500 ? invalid(message) : unavailable(message);
}

std::string with_query(const ApiCall& call) {
  const loop::ApiRequest request{.verb = loop::ApiVerb::kList,
                                 .type = {"", ""},
                                 .namespace_ = "",
                                 .name = "",
                                 .query = call.query};
  const std::string query = kube::request_path(request);  // "/?a=b"
  return call.path + query.substr(1);
}

std::string encoded(const std::string& part) {
  const loop::ApiRequest request{.type = {"", ""}, .namespace_ = "", .name = part};
  return kube::request_path(request).substr(2);  // "//name"
}

}  // namespace

Result<Duration> parse_duration(const std::string& text) {
  const Error bad = invalid("found \"" + text + "\", expected a duration such as 30s, 5m or 1h30m");
  constexpr double kMax = 366 * 86400.0;
  double seconds = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  if (at == end) return bad;
  while (at != end) {
    double number = 0;
    const auto [next, error] = std::from_chars(at, end, number, std::chars_format::fixed);
    if (error != std::errc() || !(number >= 0 && number <= kMax * 1000)) return bad;
    const std::string_view rest(next, static_cast<size_t>(end - next));
    const bool is_bare = rest.empty() && at == text.data();
    const std::string_view unit = rest.substr(0, rest.find_first_of("0123456789."));
    const double factor = unit == "ms"             ? 0.001
                          : unit == "s" || is_bare ? 1
                          : unit == "m"            ? 60
                          : unit == "h"            ? 3600
                          : unit == "d"            ? 86400
                                                   : 0;
    if (factor == 0) return bad;
    seconds += number * factor;
    at = next + unit.size();
  }
  if (seconds > kMax) return bad;
  return from_seconds(seconds);
}

Result<kube::Kubeconfig> client_kubeconfig(const ClientEnvironment& environment,
                                           const ConnectionFlags& flags) {
  return kube::load_kubeconfig({.explicit_file = flags.kubeconfig,
                                .environment = environment.kubeconfig,
                                .home = environment.home,
                                .working_folder = environment.working_folder});
}

Result<std::unique_ptr<Connection>> Connection::open(const ClientEnvironment& environment,
                                                     const ConnectionFlags& flags,
                                                     const Clock& clock) {
  TRY_ASSIGN(Duration timeout, parse_duration(flags.request_timeout));
  if (timeout <= Duration{0}) timeout = std::chrono::hours(1);
  TRY_ASSIGN(const kube::Kubeconfig config, client_kubeconfig(environment, flags));
  if (config.clusters.empty()) {
    return not_found(
        "no cluster is configured: start one on this machine with `" + environment.program +
        " up`, or point KUBECONFIG or --kubeconfig to the kubeconfig of your cluster (default: "
        "~/.kube/config)");
  }
  Result<kube::KubeAccess> access = kube::kube_access(config, {.context = flags.context,
                                                               .cluster = flags.cluster,
                                                               .user = flags.user,
                                                               .namespace_ = flags.namespace_});
  if (!access.ok()) return access.error();
  access->server.user_agent = std::string("lockstep/") + kVersion;
  kube::start_http_threads(2);
  return std::unique_ptr<Connection>(new Connection(std::move(access).value(), timeout, clock));
}

Connection::Connection(kube::KubeAccess access, Duration timeout, const Clock& clock)
    : access_(std::move(access)),
      timeout_(timeout),
      clock_(clock),
      timers_(clock),
      credentials_(access_.credentials, clock),
      client_(access_.server, mailbox_, timers_) {}

kube::HttpRequest Connection::request_for(const ApiCall& call) {
  kube::HttpRequest request{.method = call.method,
                            .path_and_query = with_query(call),
                            .authorization = credentials_.authorization(),
                            .fields = credentials_.fields(),
                            .accept = call.accept,
                            .content_type = call.content_type,
                            .deadline = timeout_,
                            .reply_bytes_max = kReplyBytesMax};
  if (!call.body.is_null()) request.body = dump_json(call.body);
  return request;
}

Error Connection::unreachable(const Error& error) const {
  std::string reason = error.message;
  if (reason.starts_with("[http] ")) reason = reason.substr(7);
  return {error.code, "Unable to connect to the server " + access_.server.url + ": " + reason};
}

bool Connection::run_until(const std::function<bool()>& done, std::optional<TimePoint> until) {
  while (!done()) {
    timers_.run_due();
    mailbox_.run();
    if (done()) return true;
    if (until && clock_.now() >= *until) return false;
    std::optional<TimePoint> next = timers_.next();
    if (until && (!next || *until < *next)) next = until;
    mailbox_.wait(next);
  }
  return true;
}

Result<kube::HttpReply> Connection::send(const ApiCall& call, size_t bytes_max) {
  for (bool may_retry = true;; may_retry = false) {
    kube::HttpRequest request = request_for(call);
    request.reply_bytes_max = bytes_max;
    std::optional<Result<kube::HttpReply>> reply;
    client_.send(std::move(request),
                 [&](Result<kube::HttpReply> answer) { reply = std::move(answer); });
    run_until([&] { return reply.has_value(); });
    if (!reply->ok()) return unreachable(reply->error());
    print_warnings((*reply)->warning);
    if ((*reply)->status == 401 && may_retry && credentials_.refresh()) continue;
    if ((*reply)->status >= 200 && (*reply)->status < 300) return *reply;
    return server_error((*reply)->status, (*reply)->body);
  }
}

Result<Json> Connection::call(const ApiCall& call) {
  TRY_ASSIGN(const kube::HttpReply reply, send(call, kReplyBytesMax));
  Result<Json> body = parse_json(reply.body, kReplyLimits);
  if (!body.ok())
    return unavailable("the server's response can't be parsed: " + body.error().message);
  return body;
}

Result<std::string> Connection::text(const ApiCall& call, size_t bytes_max) {
  TRY_ASSIGN(kube::HttpReply reply, send(call, bytes_max));
  return std::move(reply.body);
}

std::unique_ptr<kube::HttpHandle> Connection::stream(const ApiCall& call,
                                                     kube::HttpStreamHandler handler) {
  kube::HttpRequest request = request_for(call);
  request.deadline = std::chrono::hours(24);
  return client_.stream(std::move(request), std::move(handler));
}

Status Connection::end_of_stream(const Result<kube::HttpReply>& reply) {
  if (!reply.ok()) return unreachable(reply.error());
  print_warnings(reply->warning);
  if (reply->status == 200) return {};
  return server_error(reply->status, reply->body);
}

Result<Connection::WatchEnd> Connection::watch_once(
    const ApiCall& call, std::string& version,
    const std::function<bool(const std::string&, const Json&)>& on_event,
    std::optional<TimePoint> until) {
  ApiCall watch = call;
  watch.query["watch"] = "1";
  watch.query["allowWatchBookmarks"] = "true";
  watch.query["resourceVersion"] = version;
  std::optional<Result<kube::HttpReply>> end;
  bool is_stopped = false;
  bool is_expired = false;
  const auto handle =
      stream(watch, {.on_lines =
                         [&](const std::vector<std::string>& lines) {
                           for (const std::string& line : lines) {
                             if (is_stopped || is_expired) return;
                             const Result<Json> event = parse_json(line, kReplyLimits);
                             if (!event.ok()) continue;
                             const std::string type = string_or(*event, "type", "");
                             const Json* object = find_member(*event, "object");
                             if (object == nullptr) continue;
                             if (type == "ERROR") {
                               is_expired = true;
                               return;
                             }
                             const Json* meta = find_member(*object, "metadata");
                             if (meta != nullptr)
                               version = string_or(*meta, "resourceVersion", version);
                             if (type != "BOOKMARK") is_stopped = !on_event(type, *object);
                           }
                         },
                     .on_end = [&](Result<kube::HttpReply> reply) { end = std::move(reply); }});
  const bool in_time =
      run_until([&] { return end.has_value() || is_stopped || is_expired; }, until);
  if (is_stopped) return WatchEnd::kStopped;
  if (!in_time) return WatchEnd::kTimeout;
  // If the server is unreachable, the next list reports that; otherwise it returns what was missed.
  if (is_expired || (end && !end->ok())) version.clear();
  if (end && end->ok() && (*end)->status == 410) version.clear();
  if (end && end->ok() && (*end)->status != 200 && (*end)->status != 410) {
    return end_of_stream(*end).error();
  }
  return WatchEnd::kAgain;
}

Result<bool> Connection::watch(
    const ApiCall& call,
    const std::function<bool(const std::string& type, const Json& object)>& on_event,
    std::optional<TimePoint> until) {
  constexpr int kFailuresMax = 5;
  std::string version;
  int failures = 0;
  while (true) {
    if (version.empty()) {
      Result<Json> list = this->call(call);
      if (!list.ok() && (list.error().code != Code::kUnavailable || ++failures > kFailuresMax)) {
        return list.error();
      }
      if (!list.ok()) {
        run_until([] { return false; }, clock_.now() + std::chrono::seconds(1));
        continue;
      }
      failures = 0;
      const Json* meta = find_member(*list, "metadata");
      if (meta != nullptr) version = string_or(*meta, "resourceVersion", "");
      if (string_or(*list, "kind", "") == "Table") {
        if (!on_event("LIST", *list)) return true;
      } else if (const Json* items = find_member(*list, "items"); items && items->is_array()) {
        for (const Json& item : *items) {
          if (!on_event("LIST", item)) return true;
        }
        if (!on_event("LISTED", Json())) return true;
      }
    }
    TRY_ASSIGN(const WatchEnd end, watch_once(call, version, on_event, until));
    if (end != WatchEnd::kAgain) return end == WatchEnd::kStopped;
    if (until && clock_.now() >= *until) return false;
    // Don't spin if the server ends watches immediately.
    run_until([] { return false; }, clock_.now() + std::chrono::milliseconds(200));
  }
}

std::string jobs_path(const std::string& namespace_) {
  const std::string in = namespace_.empty() ? "" : "/namespaces/" + encoded(namespace_);
  return std::string(loop::kTrainingJobs.api) + in + "/trainingjobs";
}

std::string job_path(const std::string& namespace_, const std::string& name) {
  return jobs_path(namespace_) + "/" + encoded(name);
}

std::string core_path(const std::string& namespace_, const std::string& plural,
                      const std::string& name) {
  const std::string in = namespace_.empty() ? "" : "/namespaces/" + encoded(namespace_);
  return "/api/v1" + in + "/" + plural + (name.empty() ? "" : "/" + encoded(name));
}

int print_error(const Error& error) {
  const bool is_worded = error.message.starts_with("Error from server") ||
                         error.message.starts_with("Unable to connect");
  std::fprintf(stderr, "%s%s\n", is_worded ? "" : "error: ", error.message.c_str());
  return 1;
}

}  // namespace lockstep::cli
