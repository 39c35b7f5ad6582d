#include "agent/node/api.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "common/api/agent_messages.h"
#include "common/base/json.h"
#include "common/http/bearer_token.h"
#include "common/metrics/exposition.h"

namespace lockstep::node {
namespace {

constexpr int64_t kTimeoutSecondsMax = 30;

struct Route {
  std::string_view path;
  std::string_view method;
  bool needs_session;
  size_t body_bytes_max;
};
constexpr std::array<Route, 4> kRoutes = {{{"/v1/assignment", "PUT", true, kAssignmentBytesMax},
                                           {"/v1/state", "GET", true, 0},
                                           {"/healthz", "GET", false, 0},
                                           {"/metrics", "GET", false, 0}}};

std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find('?'));
}

const Route* find_route(std::string_view target) {
  for (const Route& route : kRoutes) {
    if (route.path == path_of(target)) return &route;
  }
  return nullptr;
}

// Returns the value of `name` in the target's query. Does not unescape; numbers need no escaping.
std::optional<std::string_view> query_value(std::string_view target, std::string_view name) {
  const size_t begin = target.find('?');
  std::string_view query = begin == std::string_view::npos ? "" : target.substr(begin + 1);
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) != name) continue;
    return equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1);
  }
  return std::nullopt;
}

Result<int64_t> query_number(std::string_view target, std::string_view name, int64_t fallback) {
  const auto text = query_value(target, name);
  if (!text) return fallback;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0) {
    return invalid("[query] " + std::string(name) + ": expected a whole number of 0 or more");
  }
  return value;
}

unsigned status_of(Code code) {
  switch (code) {
    case Code::kInvalid:
      return 400;
    case Code::kConflict:
      return 409;
    case Code::kNotFound:
      return 404;
    default:
      return 503;
  }
}

http::Response error_response(unsigned status, const std::string& message) {
  return {.status = status, .body = dump_json(Json{{"error", message}})};
}

// Writes the state in the version that the client reads, or in the newest one.
http::Response state_response(Result<AgentState> state, int64_t protocol) {
  if (!state.ok()) return error_response(status_of(state.error().code), state.error().message);
  state->protocol = std::clamp(protocol, kProtocolOldest, kProtocolNewest);
  return {.body = dump_json(to_json(*state))};
}

Result<int64_t> asked_protocol(const std::string& target) {
  constexpr int64_t kUnnamed = 1;
  return query_number(target, "protocol", kUnnamed);
}

}  // namespace

bool AgentApi::is_authenticated(const http::Head& head) const {
  if (head.is_authentic) return true;
  return !bearer_token_.empty() && http::has_bearer_token(head, bearer_token_);
}

http::Admission AgentApi::authorize(const http::Head& head) const {
  const Route* route = find_route(head.target);
  if (route == nullptr) return {.refusal = error_response(404, "no such path")};
  if (head.method != route->method) {
    http::Response refusal =
        error_response(405, "this path accepts only " + std::string(route->method));
    refusal.fields = {{"Allow", std::string(route->method)}};
    return {.refusal = std::move(refusal)};
  }
  if (route->needs_session && !is_authenticated(head)) {
    http::Response refusal = error_response(
        401, bearer_token_.empty()
                 ? "expected a session of somebody who has the job's token; the token is refused"
                 : "expected a session, or the job's token in the header Authorization: Bearer");
    refusal.fields = {{"WWW-Authenticate", bearer_token_.empty() ? "Lockstep" : "Bearer"}};
    return {.refusal = std::move(refusal)};
  }
  return {.body_bytes_max = route->body_bytes_max, .authenticated = route->needs_session};
}

http::Response AgentApi::error(unsigned status, const std::string& message) const {
  return error_response(status, message);
}

void AgentApi::handle(http::Request request, Respond respond) {
  const std::string_view path = path_of(request.head.target);
  if (path == "/v1/assignment") return put_assignment(request, std::move(respond));
  if (path == "/v1/state") return get_state(request.head.target, std::move(respond));
  // Answered by the supervisor's thread, so that the probe fails if that thread is stuck.
  agent_.post([this, path = std::string(path), respond = std::move(respond)] {
    if (path == "/healthz") return respond({.body = "ok", .content_type = "text/plain"});
    respond({.body = agent_.metrics(), .content_type = kExpositionContentType});
  });
}

void AgentApi::put_assignment(const http::Request& request, Respond respond) {
  const Result<int64_t> protocol = asked_protocol(request.head.target);
  if (!protocol.ok()) return respond(error_response(400, protocol.error().message));
  const Result<Json> document =
      parse_json(request.body, {.bytes_max = kAssignmentBytesMax, .values_max = 1'000'000});
  if (!document.ok()) return respond(error_response(400, document.error().message));
  Result<Assignment> assignment = assignment_from_json(*document);
  if (!assignment.ok()) return respond(error_response(400, assignment.error().message));
  agent_.post([this, assignment = std::move(assignment).value(), protocol = *protocol,
               respond = std::move(respond)] {
    agent_.put_assignment(assignment, [&](const Result<AgentState>& state) {
      respond(state_response(state, protocol));
    });
  });
}

void AgentApi::get_state(const std::string& target, Respond respond) {
  const Result<int64_t> since = query_number(target, "since", 0);
  const Result<int64_t> timeout = query_number(target, "timeoutSeconds", 0);
  const Result<int64_t> progress = query_number(target, "progressMilliseconds", 0);
  const Result<int64_t> protocol = asked_protocol(target);
  for (const Result<int64_t>* number : {&since, &timeout, &progress, &protocol}) {
    if (!number->ok()) return respond(error_response(400, number->error().message));
  }
  const Agent::StateWait wait{
      .since = *since,
      .timeout = std::chrono::seconds(std::min(*timeout, kTimeoutSecondsMax)),
      .progress_after = std::chrono::milliseconds(std::min(*progress, 1000 * kTimeoutSecondsMax))};
  agent_.post([this, wait, protocol = *protocol, respond = std::move(respond)] {
    agent_.get_state(wait, [respond, protocol](const Result<AgentState>& state) {
      respond(state_response(state, protocol));
    });
  });
}

}  // namespace lockstep::node
