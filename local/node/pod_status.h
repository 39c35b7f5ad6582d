#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "local/node/pod_plan.h"

namespace lockstep::local {

// Derives a pod's status, as a kubelet writes it, from what happened to its containers. Source:
// Kubernetes, "Pod Lifecycle"; kubelet_pods.go (getPhase).
struct EndFacts {
  int exit_code = 0;
  int signal = 0;
  std::string reason;   // Completed, Error, OOMKilled, StartError, Unknown
  std::string message;  // the termination message
  WallTime started{};
  WallTime finished{};
  std::string container_id;
};

struct ContainerRecord {
  enum class State { kWaiting, kRunning, kTerminated };
  std::string name;
  std::string image;
  State state = State::kWaiting;
  std::string waiting_reason = "ContainerCreating";
  std::string waiting_message;
  WallTime started{};
  std::string container_id;
  std::optional<EndFacts> end;   // if kTerminated
  std::optional<EndFacts> last;  // of the previous instance
  int64_t restarts = 0;
  bool ready = false;
  bool passed_startup = false;
};

struct PodRecord {
  RestartPolicy restart_policy = RestartPolicy::kAlways;
  std::vector<ContainerRecord> init_containers;
  std::vector<ContainerRecord> containers;
  std::string address;
  std::string host_address;
  WallTime started{};
  // If set, the node ended the pod: phase Failed, whatever the containers' exit codes.
  std::string failure_reason;
  std::string failure_message;
};

// Returns Pending, Running, Succeeded or Failed.
std::string phase_of(const PodRecord& pod);
bool is_ready(const PodRecord& pod);

// Remembers when each condition last changed.
class PodConditions {
 public:
  // Returns kubelet's conditions, plus those in `present` (status.conditions) that others own.
  Json update(const PodRecord& pod, const Json& present, WallTime now);

 private:
  struct Known {
    bool holds = false;
    WallTime since{};
  };
  Json condition(const std::string& type, bool holds, std::string_view reason,
                 const std::string& message, WallTime now);

  std::map<std::string, Known> known_;
};

Json pod_status(const PodRecord& pod, Json conditions);
// Reads state and lastState back into a record, after a power cut. Returns true if the container
// had been started.
bool read_back(const Json& status, ContainerRecord& record);

}  // namespace lockstep::local
