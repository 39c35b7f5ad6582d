#include "local/table/pod_row.h"

#include <algorithm>
#include <optional>
#include <string>

#include "local/table/human_duration.h"
#include "local/table/lookup.h"

namespace lockstep::local {
namespace {

struct PodSummary {
  std::string reason;
  int64_t restarts = 0;
  std::optional<WallTime> last_restart;
  size_t ready = 0;
};

bool is_true(const Json& conditions, std::string_view type) {
  return text_at(condition_of(conditions, type), {"status"}) == "True";
}

// Returns "Error", "ExitCode:3" or "Signal:9".
std::string end_of(const Json& terminated) {
  std::string reason = text_at(terminated, {"reason"});
  if (!reason.empty()) return reason;
  int64_t signal = int_or(terminated, "signal", 0);
  return signal != 0 ? "Signal:" + std::to_string(signal)
                     : "ExitCode:" + std::to_string(int_or(terminated, "exitCode", 0));
}

void count_restarts(const Json& container, PodSummary& summary) {
  summary.restarts += int_or(container, "restartCount", 0);
  std::string ended = text_at(container, {"lastState", "terminated", "finishedAt"});
  Result<WallTime> time = wall_time_from_rfc3339(ended);
  if (time.ok()) summary.last_restart = std::max(*time, summary.last_restart.value_or(*time));
}

// Returns whether all init containers are done. If not, sets the reason of the first unfinished
// one.
bool summarize_init(const Json& pod, PodSummary& summary) {
  const Json& containers = list_at(pod, {"status", "initContainerStatuses"});
  for (size_t i = 0; i < containers.size(); ++i) {
    const Json& container = containers[i];
    count_restarts(container, summary);
    const Json& ended = value_at(container, {"state", "terminated"});
    std::string waits_for = text_at(container, {"state", "waiting", "reason"});
    if (ended.is_object() && int_or(ended, "exitCode", 0) == 0) continue;
    if (ended.is_object()) {
      summary.reason = "Init:" + end_of(ended);
    } else if (!waits_for.empty() && waits_for != "PodInitializing") {
      summary.reason = "Init:" + waits_for;
    } else {
      size_t count = list_at(pod, {"spec", "initContainers"}).size();
      summary.reason = "Init:" + std::to_string(i) + "/" + std::to_string(count);
    }
    return false;
  }
  return true;
}

void summarize_containers(const Json& pod, PodSummary& summary) {
  summary.restarts = 0;
  summary.last_restart.reset();
  bool any_running = false;
  const Json& containers = list_at(pod, {"status", "containerStatuses"});
  // Go backwards, so that the first container with a reason wins.
  for (size_t i = containers.size(); i-- > 0;) {
    const Json& container = containers[i];
    count_restarts(container, summary);
    const Json& ended = value_at(container, {"state", "terminated"});
    std::string waits_for = text_at(container, {"state", "waiting", "reason"});
    if (!waits_for.empty()) {
      summary.reason = waits_for;
    } else if (ended.is_object()) {
      summary.reason = end_of(ended);
    } else if (bool_or(container, "ready", false) &&
               value_at(container, {"state", "running"}).is_object()) {
      any_running = true;
      ++summary.ready;
    }
  }
  if (summary.reason == "Completed" && any_running)
    summary.reason =
        is_true(value_at(pod, {"status", "conditions"}), "Ready") ? "Running" : "NotReady";
}

PodSummary summarize(const Json& pod) {
  const Json& conditions = value_at(pod, {"status", "conditions"});
  std::string phase = text_at(pod, {"status", "phase"});
  std::string pod_reason = text_at(pod, {"status", "reason"});
  PodSummary summary{.reason = pod_reason.empty() ? phase : pod_reason};
  if (text_at(condition_of(conditions, "PodScheduled"), {"reason"}) == "SchedulingGated")
    summary.reason = "SchedulingGated";
  if (summarize_init(pod, summary) || is_true(conditions, "Initialized"))
    summarize_containers(pod, summary);
  bool over = phase == "Succeeded" || phase == "Failed";
  if (value_at(pod, {"metadata", "deletionTimestamp"}).is_string()) {
    if (pod_reason == "NodeLost") {
      summary.reason = "Unknown";
    } else if (!over) {
      summary.reason = "Terminating";
    }
  }
  return summary;
}

std::string restarts_text(const PodSummary& summary, WallTime now) {
  std::string text = std::to_string(summary.restarts);
  if (summary.restarts == 0 || !summary.last_restart.has_value()) return text;
  return text + " (" + human_duration(now - *summary.last_restart) + " ago)";
}

std::string address(const Json& pod) {
  const Json& addresses = list_at(pod, {"status", "podIPs"});
  if (!addresses.empty()) return text_at(addresses[0], {"ip"}, "<none>");
  return text_at(pod, {"status", "podIP"}, "<none>");
}

std::string readiness_gates(const Json& pod) {
  const Json& gates = list_at(pod, {"spec", "readinessGates"});
  if (gates.empty()) return "<none>";
  const Json& conditions = value_at(pod, {"status", "conditions"});
  auto open = std::count_if(gates.begin(), gates.end(), [&](const Json& gate) {
    return is_true(conditions, text_at(gate, {"conditionType"}));
  });
  return std::to_string(open) + "/" + std::to_string(gates.size());
}

}  // namespace

Json pod_cells(const Json& pod, WallTime now) {
  PodSummary summary = summarize(pod);
  size_t containers = list_at(pod, {"spec", "containers"}).size();
  return Json::array(
      {text_at(pod, {"metadata", "name"}),
       std::to_string(summary.ready) + "/" + std::to_string(containers), summary.reason,
       restarts_text(summary, now), age(value_at(pod, {"metadata", "creationTimestamp"}), now),
       address(pod), text_at(pod, {"spec", "nodeName"}, "<none>"),
       text_at(pod, {"status", "nominatedNodeName"}, "<none>"), readiness_gates(pod)});
}

}  // namespace lockstep::local
