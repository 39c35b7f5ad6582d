#include "cli/local/node/pod_status.h"

namespace lockstep::local {
namespace {

Json condition(std::string_view type, bool holds, WallTime when, std::string_view reason) {
  Json made = {{"type", type},
               {"status", holds ? "True" : "False"},
               {"lastProbeTime", nullptr},
               {"lastTransitionTime", rfc3339(when)}};
  if (!reason.empty()) made["reason"] = reason;
  return made;
}

Json conditions(bool initialized, bool ready, WallTime when, std::string_view reason) {
  return Json::array({condition("Initialized", initialized, when, ""),
                      condition("Ready", ready, when, reason),
                      condition("ContainersReady", ready, when, reason),
                      condition("PodScheduled", true, when, "")});
}

Json container_status(const ContainerFacts& facts, bool running, Json state) {
  return {{"name", facts.container},
          {"image", facts.image},
          {"imageID", ""},
          {"containerID", facts.container_id},
          {"ready", running},
          {"started", running},
          {"restartCount", 0},
          {"lastState", Json::object()},
          {"state", std::move(state)}};
}

Json with_addresses(const ContainerFacts& facts, Json status) {
  status["hostIP"] = facts.host_address;
  if (!facts.address.empty()) {
    status["podIP"] = facts.address;
    status["podIPs"] = Json::array({{{"ip", facts.address}}});
  }
  return status;
}

}  // namespace

Json waiting_status(const ContainerFacts& facts, std::string_view reason,
                    std::string_view message) {
  Json state = {{"waiting", {{"reason", reason}, {"message", message}}}};
  return {{"phase", "Pending"},
          {"conditions", conditions(true, false, facts.started, "ContainersNotReady")},
          {"containerStatuses", Json::array({container_status(facts, false, std::move(state))})}};
}

Json running_status(const ContainerFacts& facts) {
  Json state = {{"running", {{"startedAt", rfc3339(facts.started)}}}};
  return with_addresses(facts, {{"phase", "Running"},
                                {"startTime", rfc3339(facts.started)},
                                {"conditions", conditions(true, true, facts.started, "")},
                                {"containerStatuses",
                                 Json::array({container_status(facts, true, std::move(state))})}});
}

Json ended_status(const ContainerFacts& facts, const EndFacts& end) {
  Json terminated = {{"exitCode", end.exit_code},
                     {"reason", end.reason},
                     {"startedAt", rfc3339(facts.started)},
                     {"finishedAt", rfc3339(end.finished)},
                     {"containerID", facts.container_id}};
  if (end.signal != 0) terminated["signal"] = end.signal;
  if (!end.message.empty()) terminated["message"] = end.message;
  bool succeeded = end.exit_code == 0;
  return with_addresses(
      facts,
      {{"phase", succeeded ? "Succeeded" : "Failed"},
       {"conditions",
        conditions(true, false, end.finished, succeeded ? "PodCompleted" : "ContainersNotReady")},
       {"containerStatuses",
        Json::array({container_status(facts, false, {{"terminated", std::move(terminated)}})})}});
}

Json refused_status(std::string_view reason, std::string_view message) {
  return {{"phase", "Failed"}, {"reason", reason}, {"message", message}};
}

}  // namespace lockstep::local
