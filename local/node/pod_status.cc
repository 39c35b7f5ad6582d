#include "local/node/pod_status.h"

#include <algorithm>
#include <array>

#include "local/node/fields.h"

namespace lockstep::local {
namespace {

using State = ContainerRecord::State;

constexpr int kUnknownExitCode = 255;  // containerd's, if nobody saw the end

constexpr std::array kOwnConditions = {"PodReadyToStartContainers", "Initialized", "Ready",
                                       "ContainersReady", "PodScheduled"};

Json terminated_json(const EndFacts& end) {
  Json json = {{"exitCode", end.exit_code},
               {"reason", end.reason},
               {"startedAt", rfc3339(end.started)},
               {"finishedAt", rfc3339(end.finished)},
               {"containerID", end.container_id}};
  if (end.signal != 0) json["signal"] = end.signal;
  if (!end.message.empty()) json["message"] = end.message;
  return {{"terminated", std::move(json)}};
}

Json state_json(const ContainerRecord& container) {
  if (container.state == State::kRunning)
    return {{"running", {{"startedAt", rfc3339(container.started)}}}};
  if (container.state == State::kTerminated) return terminated_json(*container.end);
  Json waiting = {{"reason", container.waiting_reason}};
  if (!container.waiting_message.empty()) waiting["message"] = container.waiting_message;
  return {{"waiting", std::move(waiting)}};
}

Json container_json(const ContainerRecord& container) {
  return {{"name", container.name},
          {"image", container.image},
          {"imageID", ""},
          {"containerID", container.container_id},
          {"ready", container.ready},
          {"started", container.state == State::kRunning && container.passed_startup},
          {"restartCount", container.restarts},
          {"lastState", container.last ? terminated_json(*container.last) : Json::object()},
          {"state", state_json(container)}};
}

Json containers_json(const std::vector<ContainerRecord>& containers) {
  Json list = Json::array();
  for (const ContainerRecord& container : containers) list.push_back(container_json(container));
  return list;
}

bool has_succeeded(const ContainerRecord& container) {
  return container.state == State::kTerminated && container.end->exit_code == 0;
}

bool is_initialized(const PodRecord& pod) {
  return std::all_of(pod.init_containers.begin(), pod.init_containers.end(), has_succeeded);
}

std::string init_phase(const PodRecord& pod) {
  for (const ContainerRecord& container : pod.init_containers) {
    bool failed = container.state == State::kTerminated && container.end->exit_code != 0;
    if (failed && pod.restart_policy == RestartPolicy::kNever) return "Failed";
    if (!has_succeeded(container)) return "Pending";
  }
  return "";
}

// "containers with unready status: [a b]"
std::string not_ready_message(const PodRecord& pod) {
  std::string names;
  for (const ContainerRecord& container : pod.containers) {
    if (!container.ready) names += (names.empty() ? "" : " ") + container.name;
  }
  return "containers with unready status: [" + names + "]";
}

}  // namespace

std::string phase_of(const PodRecord& pod) {
  if (!pod.failure_reason.empty()) return "Failed";
  if (std::string phase = init_phase(pod); !phase.empty()) return phase;
  int waiting = 0, running = 0, stopped = 0, succeeded = 0;
  for (const ContainerRecord& container : pod.containers) {
    if (container.state == State::kRunning) {
      ++running;
    } else if (container.state == State::kTerminated || container.last) {
      ++stopped;
      succeeded += has_succeeded(container) ? 1 : 0;
    } else {
      ++waiting;
    }
  }
  if (waiting > 0) return "Pending";
  if (running > 0) return "Running";
  if (pod.restart_policy == RestartPolicy::kAlways) return "Running";
  if (stopped == succeeded) return "Succeeded";
  return pod.restart_policy == RestartPolicy::kNever ? "Failed" : "Running";
}

bool is_ready(const PodRecord& pod) {
  return phase_of(pod) == "Running" &&
         std::all_of(pod.containers.begin(), pod.containers.end(),
                     [](const ContainerRecord& container) { return container.ready; });
}

Json PodConditions::condition(const std::string& type, bool holds, std::string_view reason,
                              const std::string& message, WallTime now) {
  auto [at, is_new] = known_.try_emplace(type, Known{holds, now});
  if (at->second.holds != holds) at->second = {holds, now};
  Json made = {{"type", type},
               {"status", holds ? "True" : "False"},
               {"lastProbeTime", nullptr},
               {"lastTransitionTime", rfc3339(at->second.since)}};
  if (!reason.empty()) made["reason"] = reason;
  if (!message.empty()) made["message"] = message;
  return made;
}

Json PodConditions::update(const PodRecord& pod, const Json& present, WallTime now) {
  bool ready = is_ready(pod);
  std::string phase = phase_of(pod);
  std::string reason = ready                  ? ""
                       : phase == "Succeeded" ? "PodCompleted"
                       : phase == "Failed"    ? "PodFailed"
                                              : "ContainersNotReady";
  std::string message = reason == "ContainersNotReady" ? not_ready_message(pod) : "";
  bool initialized = is_initialized(pod);
  Json list = Json::array({condition("Initialized", initialized,
                                     initialized ? "" : "ContainersNotInitialized", "", now),
                           condition("Ready", ready, reason, message, now),
                           condition("ContainersReady", ready, reason, message, now),
                           condition("PodScheduled", true, "", "", now)});
  for (const Json& other : present) {
    std::string type = other.is_object() ? string_or(other, "type", "") : "";
    bool is_own =
        std::find(kOwnConditions.begin(), kOwnConditions.end(), type) != kOwnConditions.end();
    if (!type.empty() && !is_own) list.push_back(other);
  }
  return list;
}

Json pod_status(const PodRecord& pod, Json conditions) {
  Json status = {{"phase", phase_of(pod)},
                 {"conditions", std::move(conditions)},
                 {"hostIP", pod.host_address},
                 {"startTime", rfc3339(pod.started)},
                 {"containerStatuses", containers_json(pod.containers)}};
  if (!pod.init_containers.empty())
    status["initContainerStatuses"] = containers_json(pod.init_containers);
  if (!pod.address.empty()) {
    status["podIP"] = pod.address;
    status["podIPs"] = Json::array({{{"ip", pod.address}}});
  }
  if (!pod.failure_reason.empty()) status["reason"] = pod.failure_reason;
  if (!pod.failure_message.empty()) status["message"] = pod.failure_message;
  return status;
}

namespace {

WallTime time_or(const Json& object, std::string_view key, WallTime fallback) {
  Result<WallTime> time = wall_time_from_rfc3339(string_or(object, key, ""));
  return time.ok() ? *time : fallback;
}

EndFacts end_from_json(const Json& terminated) {
  return {.exit_code = static_cast<int>(int_or(terminated, "exitCode", kUnknownExitCode)),
          .signal = static_cast<int>(int_or(terminated, "signal", 0)),
          .reason = string_or(terminated, "reason", "Unknown"),
          .message = string_or(terminated, "message", ""),
          .started = time_or(terminated, "startedAt", {}),
          .finished = time_or(terminated, "finishedAt", {}),
          .container_id = string_or(terminated, "containerID", "")};
}

}  // namespace

bool read_back(const Json& status, ContainerRecord& record) {
  record.restarts = int_or(status, "restartCount", 0);
  const Json& state = object_of(status, "state");
  const Json& last = object_of(object_of(status, "lastState"), "terminated");
  if (!last.empty()) record.last = end_from_json(last);
  if (const Json* terminated = find_member(state, "terminated")) {
    record.state = State::kTerminated;
    record.end = end_from_json(*terminated);
    record.container_id = record.end->container_id;
    return true;
  }
  const Json* running = find_member(state, "running");
  if (running == nullptr) return record.last.has_value();
  record.state = State::kTerminated;
  record.container_id = string_or(status, "containerID", "");
  record.end = EndFacts{.exit_code = kUnknownExitCode,
                        .reason = "Unknown",
                        .started = time_or(*running, "startedAt", {}),
                        .container_id = record.container_id};
  return true;
}

}  // namespace lockstep::local
