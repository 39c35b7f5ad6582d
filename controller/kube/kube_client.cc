#include "controller/kube/kube_client.h"

#include <algorithm>
#include <charconv>

#include "common/base/json_cut.h"
#include "common/base/log.h"
#include "controller/kube/retry_after.h"

namespace lockstep::kube {
namespace {

// A page of objects takes some 70 MB in memory at most; the informer asks for a smaller one. A
// single object always fits in.
constexpr ObjectLimits kLimits{
    .bytes_max = 64u << 20, .values_max = 700'000, .dropped = "managedFields"};
constexpr int kInEvent = 1;
constexpr int kInList = 2;
constexpr size_t kWarningsTold = 100;

void append_encoded(std::string& out, std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
    if (is_plain) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
}

std::string collection_path(loop::ResourceType type, const std::string& namespace_) {
  std::string path(type.api);
  if (!namespace_.empty()) {
    path += "/namespaces/";
    append_encoded(path, namespace_);
  }
  path += '/';
  path += type.plural;
  return path;
}

void append_query(std::string& path, const std::map<std::string, std::string>& query) {
  char separator = path.find('?') == std::string::npos ? '?' : '&';
  for (const auto& [key, value] : query) {
    path += std::exchange(separator, '&');
    append_encoded(path, key);
    path += '=';
    append_encoded(path, value);
  }
}

const char* method_of(loop::ApiVerb verb) {
  switch (verb) {
    case loop::ApiVerb::kGet:
    case loop::ApiVerb::kList:
      return "GET";
    case loop::ApiVerb::kCreate:
      return "POST";
    case loop::ApiVerb::kReplace:
    case loop::ApiVerb::kReplaceStatus:
      return "PUT";
    case loop::ApiVerb::kDelete:
      return "DELETE";
  }
  return "GET";
}

const char* verb_name(loop::ApiVerb verb) {
  return verb == loop::ApiVerb::kList ? "LIST" : method_of(verb);
}

int code_of(const Result<HttpReply>& reply) {
  return reply.ok() ? reply->status : 0;
}

bool has_cause(const Json& status, std::string_view reason) {
  const Json* details = find_member(status, "details");
  const Json* causes = details == nullptr ? nullptr : find_member(*details, "causes");
  if (causes == nullptr || !causes->is_array()) return false;
  return std::any_of(causes->begin(), causes->end(), [reason](const Json& cause) {
    return string_or(cause, "reason", "") == reason;
  });
}

// `status`: the server's metav1.Status, or null if the body is not one (a proxy's page).
loop::ApiOutcome outcome_of(int code, const Json& status, bool has_retry_after) {
  const std::string reason = string_or(status, "reason", "");
  switch (code) {
    case 400:
    case 413:
    case 415:
    case 422:
      return loop::ApiOutcome::kInvalid;
    case 401:
      return loop::ApiOutcome::kUnauthorized;
    case 403:
      return loop::ApiOutcome::kForbidden;
    case 404:
      return loop::ApiOutcome::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? loop::ApiOutcome::kAlreadyExists
                                       : loop::ApiOutcome::kConflict;
    case 410:
      return loop::ApiOutcome::kExpired;
    case 429:
      return loop::ApiOutcome::kThrottled;
    case 504:
      return has_cause(status, "ResourceVersionTooLarge") ? loop::ApiOutcome::kTooLarge
                                                          : loop::ApiOutcome::kTimeout;
    default:
      return has_retry_after ? loop::ApiOutcome::kThrottled : loop::ApiOutcome::kUnavailable;
  }
}

loop::ApiReply from_status(int code, const Json& status, Duration retry_after) {
  loop::ApiReply reply;
  reply.outcome = outcome_of(code, status, retry_after > Duration{0});
  reply.message = "HTTP " + std::to_string(code) + ": " + string_or(status, "message", "");
  reply.retry_after = retry_after;
  if (const Json* details = find_member(status, "details"); details && retry_after <= Duration{0}) {
    const int64_t seconds = std::clamp<int64_t>(int_or(*details, "retryAfterSeconds", 0), 0, 300);
    reply.retry_after = std::chrono::seconds(seconds);
  }
  return reply;
}

loop::ApiReply from_error(const Error& error) {
  loop::ApiReply reply;
  reply.outcome = error.code == Code::kTimeout   ? loop::ApiOutcome::kTimeout
                  : error.code == Code::kInvalid ? loop::ApiOutcome::kUnreadable
                                                 : loop::ApiOutcome::kUnavailable;
  reply.message = error.message;
  return reply;
}

Result<Json> parse_objects(std::string_view text, const ReplyShape& shape) {
  ObjectLimits limits = kLimits;
  limits.objects_at = shape.objects_at;
  if (shape.spec_kept.empty() || text.size() > limits.bytes_max) {
    return parse_json_objects(text, limits);
  }
  return parse_json_objects(
      cut_json(text, {.objects_at = shape.objects_at, .part = "spec", .kept = shape.spec_kept}),
      limits);
}

ReplyShape shape_of(const loop::ApiRequest& request) {
  const bool is_read = request.verb == loop::ApiVerb::kGet;
  return {.spec_kept = is_read ? "" : request.type.spec_kept,
          .objects_at = request.verb == loop::ApiVerb::kList ? kInList : 0};
}

}  // namespace

std::string request_path(const loop::ApiRequest& request) {
  std::string path = collection_path(request.type, request.namespace_);
  if (!request.name.empty()) {
    path += '/';
    append_encoded(path, request.name);
  }
  if (request.verb == loop::ApiVerb::kReplaceStatus) path += "/status";
  append_query(path, request.query);
  return path;
}

loop::ApiReply to_api_reply(const Result<HttpReply>& reply, WallTime now, const ReplyShape& shape) {
  if (!reply.ok()) return from_error(reply.error());
  Result<Json> body = parse_objects(reply->body, shape);
  if (reply->status >= 200 && reply->status < 300) {
    // The request has taken effect; the next read shows it.
    if (!body.ok()) {
      return {.outcome = loop::ApiOutcome::kUnreadable,
              .message = "could not parse the reply: " + body.error().message};
    }
    return {.outcome = loop::ApiOutcome::kOk, .body = std::move(body).value()};
  }
  return from_status(reply->status, body.ok() ? *body : Json(),
                     retry_after(reply->retry_after, now));
}

namespace {

RateLimiter::Options with_open_max(const KubeClientOptions& options) {
  RateLimiter::Options rate = options.rate;
  rate.open_max = options.open_max;
  return rate;
}

// Leases must be renewed even while a plugin runs.
CredentialOptions without_waiting(CredentialOptions options) {
  options.waits_for_plugin = false;
  return options;
}

}  // namespace

KubeClient::KubeClient(KubeClientOptions options, Mailbox& mailbox, loop::Timers& timers,
                       const Clock& clock)
    : options_(std::move(options)),
      timers_(timers),
      credentials_(without_waiting(options_.credentials), clock),
      limiter_(timers, with_open_max(options_)),
      requests_(options_.server, mailbox, timers),
      watches_(options_.server, mailbox, timers) {}

void KubeClient::send(loop::ApiRequest request, Done done) {
  if (request.type.plural == loop::kLeases.plural) {
    send_now(std::move(request), std::move(done), true);
    return;
  }
  const loop::ApiPriority priority = request.priority;
  limiter_.submit(
      [this, request = std::move(request), done = std::move(done),
       since = timers_.now()]() mutable {
        metrics_.waited_seconds.observe(to_seconds(timers_.now() - since));
        send_in_turn(std::move(request), std::move(done));
      },
      priority);
}

void KubeClient::send_in_turn(loop::ApiRequest request, Done done) {
  if (request.may_send && !request.may_send()) {
    limiter_.end_one();
    done(loop::not_sent());
    return;
  }
  send_now(
      std::move(request),
      [this, done = std::move(done)](loop::ApiReply reply) {
        if (reply.outcome == loop::ApiOutcome::kThrottled)
          limiter_.hold_until(timers_.now() + std::min(reply.retry_after, options_.hold_max));
        limiter_.end_one();
        done(std::move(reply));
      },
      true);
}

void KubeClient::send_now(loop::ApiRequest request, Done done, bool may_retry) {
  HttpRequest http{.method = method_of(request.verb),
                   .path_and_query = request_path(request),
                   .authorization = authorization(),
                   .fields = credentials_.fields(),
                   .deadline = options_.deadline,
                   .reply_bytes_max = options_.reply_bytes_max};
  if (request.make_text) {
    http.body = request.make_text();
  } else if (!request.body.is_null()) {
    http.body = dump_json(request.body);
  }
  requests_.send(std::move(http),
                 [this, request = std::move(request), done = std::move(done), may_retry,
                  since = timers_.now()](Result<HttpReply> reply) mutable {
                   metrics_.count(verb_name(request.verb), code_of(reply));
                   metrics_.took(verb_name(request.verb), to_seconds(timers_.now() - since));
                   if (reply.ok() && reply->status == 401 && may_retry && credentials_.refresh()) {
                     send_now(std::move(request), std::move(done), false);
                     return;
                   }
                   if (reply.ok()) tell_warning(reply->warning);
                   done(to_api_reply(reply, timers_.wall_now(), shape_of(request)));
                 });
}

const std::string& KubeClient::authorization() {
  const std::string& text = credentials_.authorization();
  if (const auto certificate = credentials_.take_certificate()) {
    log_info("the credential plugin returned a new client certificate");
    requests_.use_certificate(certificate->first, certificate->second);
    watches_.use_certificate(certificate->first, certificate->second);
  }
  return text;
}

void KubeClient::tell_warning(const std::string& warning) {
  if (warning.empty() || told_warnings_.size() >= kWarningsTold) return;
  if (told_warnings_.insert(warning).second)
    log_warning("the API server sent a warning", {{"warning", warning}});
}

namespace {

// Turns the lines of one watch into events, and its end into an outcome.
class KubeWatch final : public loop::WatchHandle {
 public:
  KubeWatch(loop::ResourceType type, loop::WatchHandler handler, loop::Timers& timers,
            Credentials& credentials, RequestMetrics& metrics)
      : type_(type),
        handler_(std::move(handler)),
        timers_(timers),
        credentials_(credentials),
        metrics_(metrics) {}

  void open(HttpClient& client, HttpRequest request) {
    http_ = client.stream(std::move(request),
                          {.on_lines = [this](std::vector<std::string> lines) { on_lines(lines); },
                           .on_end = [this](Result<HttpReply> reply) { on_end(reply); }});
  }

 private:
  void on_lines(const std::vector<std::string>& lines) {
    if (is_over_) return;
    std::vector<loop::WatchEvent> events;
    std::optional<loop::ApiReply> end;
    for (const std::string& line : lines) {
      end = read(line, events);
      if (end) break;
    }
    is_over_ = end.has_value();
    if (!events.empty()) handler_.on_events(std::move(events));
    if (!end) return;
    metrics_.count("WATCH", 200);
    handler_.on_end(std::move(*end));  // may destroy this
  }

  // Adds the line's event, or returns how the watch ends with it.
  std::optional<loop::ApiReply> read(const std::string& line,
                                     std::vector<loop::WatchEvent>& events) const {
    Result<Json> event = parse_objects(line, {type_.spec_kept, kInEvent});
    if (!event.ok()) return from_error(event.error());
    Json* object = event->is_object() && event->contains("object") ? &(*event)["object"] : nullptr;
    const std::string type = string_or(*event, "type", "");
    if (object == nullptr || type.empty())
      return from_error(invalid("[watch] expected an event with type and object"));
    if (type == "ERROR") {
      return from_status(static_cast<int>(int_or(*object, "code", 500)), *object, Duration{0});
    }
    loop::WatchEventType kind = loop::WatchEventType::kModified;
    if (type == "ADDED") kind = loop::WatchEventType::kAdded;
    if (type == "DELETED") kind = loop::WatchEventType::kDeleted;
    if (type == "BOOKMARK") kind = loop::WatchEventType::kBookmark;
    events.push_back({.type = kind, .object = std::move(*object)});
    return std::nullopt;
  }

  void on_end(const Result<HttpReply>& reply) {
    if (is_over_) return;
    is_over_ = true;
    metrics_.count("WATCH", code_of(reply));
    if (reply.ok() && reply->status == 200) {
      handler_.on_end({.outcome = loop::ApiOutcome::kOk});
      return;
    }
    if (reply.ok() && reply->status == 401) credentials_.refresh();
    handler_.on_end(to_api_reply(reply, timers_.wall_now(), {}));
  }

  const loop::ResourceType type_;
  loop::WatchHandler handler_;
  loop::Timers& timers_;
  Credentials& credentials_;
  RequestMetrics& metrics_;
  bool is_over_ = false;
  std::unique_ptr<HttpHandle> http_;
};

}  // namespace

std::unique_ptr<loop::WatchHandle> KubeClient::watch(loop::WatchRequest request,
                                                     loop::WatchHandler handler) {
  std::string path = collection_path(request.type, request.namespace_) + "?watch=1";
  append_query(path, request.query);
  int64_t seconds = 300;
  if (const auto timeout = request.query.find("timeoutSeconds"); timeout != request.query.end()) {
    std::from_chars(timeout->second.data(), timeout->second.data() + timeout->second.size(),
                    seconds);
  }
  HttpRequest http{.method = "GET",
                   .path_and_query = std::move(path),
                   .authorization = authorization(),
                   .fields = credentials_.fields(),
                   .deadline = std::chrono::seconds(seconds) + options_.watch_margin};
  auto watch = std::make_unique<KubeWatch>(request.type, std::move(handler), timers_, credentials_,
                                           metrics_);
  watch->open(watches_, std::move(http));
  return watch;
}

}  // namespace lockstep::kube
