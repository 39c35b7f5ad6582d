// The `log` subresource of pods: what is asked for, in kube-apiserver's and kubelet's words.
#include "cli/local/store/api.h"

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

// The container that is meant, or why that can't be said.
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

// Why an instance that has not begun has no output; nullopt: it has begun.
std::optional<ApiResponse> still_waiting(const Json& pod, const LogRequest& request) {
  const Json* status = container_status(pod, request.container);
  const Json* state = status == nullptr ? nullptr : find_member(*status, "state");
  const Json* waiting = state == nullptr ? nullptr : find_member(*state, "waiting");
  if (status != nullptr && waiting == nullptr) return std::nullopt;
  if (status != nullptr && !find_member(*status, "lastState")->empty()) return std::nullopt;
  const std::string reason =
      waiting == nullptr ? "ContainerCreating" : string_or(*waiting, "reason", "ContainerCreating");
  return bad_request("container \"" + request.container + "\" in pod \"" + request.pod +
                     "\" is waiting to start: " + reason);
}

std::optional<ApiResponse> read_amounts(const ApiPath& path, LogRequest& request) {
  for (auto [name, value] : {std::pair("tailLines", &request.tail_lines),
                             std::pair("limitBytes", &request.limit_bytes)}) {
    Result<std::optional<int64_t>> number = path.number(name);
    if (!number.ok()) return bad_request(number.error().message);
    *value = *number;
  }
  for (const char* name : {"sinceSeconds", "sinceTime", "timestamps"}) {
    const std::string given = path.parameter(name);
    if (!given.empty() && given != "false")
      return bad_request(std::string(name) +
                         ": the embedded server keeps no times of lines; leave it out");
  }
  return std::nullopt;
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
  if (auto error = read_amounts(*path, log)) return *error;
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
