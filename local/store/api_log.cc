// The `log` subresource of pods: parses requests, with the wording of kube-apiserver and kubelet.
#include <charconv>

#include "local/store/api.h"

namespace lockstep::local {
namespace {

const Json& list_of(const Json& object, std::string_view parent, std::string_view list) {
  static const Json kEmpty = Json::array();
  const Json* found = find_member(object, parent);
  if (found != nullptr) found = find_member(*found, list);
  return found == nullptr || !found->is_array() ? kEmpty : *found;
}

std::string names_of(const Json& containers) {
  std::string names;
  for (const Json& container : containers)
    names += (names.empty() ? "" : " ") + string_or(container, "name", "");
  return "[" + names + "]";
}

bool has_container(const Json& pod, const std::string& name) {
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& container : list_of(pod, "spec", list)) {
      if (string_or(container, "name", "") == name) return true;
    }
  }
  return false;
}

// Returns the container that the client means, or the error response.
std::variant<std::string, ApiResponse> choose_container(const Json& pod, const std::string& name,
                                                        const std::string& asked) {
  const Json& containers = list_of(pod, "spec", "containers");
  if (!asked.empty()) {
    if (has_container(pod, asked)) return asked;
    return bad_request("container " + asked + " is not valid for pod " + name);
  }
  if (containers.size() == 1) return string_or(containers[0], "name", "");
  std::string message = "a container name must be specified for pod " + name +
                        ", choose one of: " + names_of(containers);
  const Json& first = list_of(pod, "spec", "initContainers");
  if (!first.empty()) message += " or one of the init containers: " + names_of(first);
  return bad_request(message);
}

// Returns the error for an instance that has not started and so has no output; nullopt if it has
// started.
std::optional<ApiResponse> still_waiting(const Json& pod, const LogRequest& request) {
  const Json* status = container_status(pod, request.container);
  const Json* state = status == nullptr ? nullptr : find_member(*status, "state");
  const Json* waiting = state == nullptr ? nullptr : find_member(*state, "waiting");
  if (status != nullptr && waiting == nullptr) return std::nullopt;
  const Json* last = status == nullptr ? nullptr : find_member(*status, "lastState");
  if (last != nullptr && !last->empty()) return std::nullopt;
  const std::string reason =
      waiting == nullptr ? "ContainerCreating" : string_or(*waiting, "reason", "ContainerCreating");
  return bad_request("container \"" + request.container + "\" in pod \"" + request.pod +
                     "\" is waiting to start: " + reason);
}

Result<std::optional<int64_t>> number_in(const ApiPath& path, const char* key) {
  const std::string text = path.parameter(key);
  if (text.empty()) return std::optional<int64_t>();
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return invalid(std::string(key) + ": expected a whole number, found \"" + text + "\"");
  return std::optional(value);
}

ApiResponse invalid_options(const ApiPath& path, StatusCause cause) {
  static const ResourceType kOptions{.kind = "PodLogOptions"};
  return invalid_object(kOptions, path.name, {std::move(cause)});
}

// Reads sinceSeconds or sinceTime. An age that reaches back before 1970 means no limit.
std::optional<ApiResponse> read_since(const ApiPath& path, WallTime now, LogRequest& request) {
  Result<std::optional<int64_t>> seconds = number_in(path, "sinceSeconds");
  if (!seconds.ok()) return bad_request(seconds.error().message);
  const std::string time = path.parameter("sinceTime");
  if (seconds->has_value() && !time.empty())
    return invalid_options(
        path, {"FieldValueForbidden",
               "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified", "[]"});
  if (seconds->has_value()) {
    if (**seconds <= 0)
      return invalid_options(path,
                             wrong_field(**seconds, "must be greater than 0", "sinceSeconds"));
    const auto age = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch());
    if (**seconds < age.count()) request.since = now - std::chrono::seconds(**seconds);
  }
  if (time.empty()) return std::nullopt;
  Result<WallTime> since = wall_time_from_rfc3339(time);
  if (!since.ok()) return bad_request("sinceTime: " + since.error().message);
  request.since = *since;
  return std::nullopt;
}

// Source: observed on kube-apiserver 1.20.2.
std::optional<ApiResponse> read_amounts(const ApiPath& path, WallTime now, LogRequest& request) {
  Result<std::optional<int64_t>> lines = number_in(path, "tailLines");
  if (!lines.ok()) return bad_request(lines.error().message);
  if (lines->value_or(0) < 0)
    return invalid_options(path,
                           wrong_field(**lines, "must be greater than or equal to 0", "tailLines"));
  Result<std::optional<int64_t>> bytes = number_in(path, "limitBytes");
  if (!bytes.ok()) return bad_request(bytes.error().message);
  if (bytes->value_or(1) <= 0)
    return invalid_options(path, wrong_field(**bytes, "must be greater than 0", "limitBytes"));
  request.tail_lines = *lines;
  request.limit_bytes = *bytes;
  request.timestamps = path.flag("timestamps");
  return read_since(path, now, request);
}

}  // namespace

const Json* container_status(const Json& pod, std::string_view name) {
  for (const char* list : {"containerStatuses", "initContainerStatuses"}) {
    for (const Json& status : list_of(pod, "status", list)) {
      if (string_or(status, "name", "") == name) return &status;
    }
  }
  return nullptr;
}

bool Api::is_log(const ApiRequest& request) {
  return request.method == "GET" &&
         request.target.substr(0, request.target.find('?')).ends_with("/log");
}

std::variant<LogRequest, ApiResponse> Api::open_log(const ApiRequest& request) {
  std::lock_guard lock(mutex_);
  Result<ApiPath> path = parse_target(types_, request.target);
  if (!path.ok()) return bad_request(path.error().message);
  if (path->type == nullptr || !is_pod(*path->type) || path->subresource != "log")
    return unknown_path();
  ObjectPtr pod = storage_.get(*path->type, {path->namespace_, path->name});
  if (pod == nullptr) return object_not_found(*path->type, path->name);
  auto container = choose_container(*pod, path->name, path->parameter("container"));
  if (auto* error = std::get_if<ApiResponse>(&container)) return *error;
  LogRequest log{.namespace_ = path->namespace_,
                 .pod = path->name,
                 .pod_uid = uid_of(*pod),
                 .container = std::get<std::string>(container)};
  log.previous = path->flag("previous");
  log.follow = path->flag("follow") && !log.previous;
  if (auto error = read_amounts(*path, clock_.wall_now(), log)) return *error;
  if (auto error = still_waiting(*pod, log)) return *error;
  log.container_id = string_or(*container_status(*pod, log.container), "containerID", "");
  return log;
}

bool Api::is_running(const LogRequest& log) {
  std::lock_guard lock(mutex_);
  ObjectPtr pod = storage_.get(*types_.find("", "v1", "pods"), {log.namespace_, log.pod});
  if (pod == nullptr || uid_of(*pod) != log.pod_uid) return false;
  const Json* status = container_status(*pod, log.container);
  if (status == nullptr || string_or(*status, "containerID", "") != log.container_id) return false;
  const Json* state = find_member(*status, "state");
  return state != nullptr && find_member(*state, "running") != nullptr;
}

}  // namespace lockstep::local
