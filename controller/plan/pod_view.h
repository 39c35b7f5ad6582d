#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep::plan {

// The part of a Kubernetes Pod that the plan uses.
struct PodView {
  std::string name;
  std::string uid;
  std::string owner_uid;  // UID of its controller; empty if none
  int64_t node_index = -1;
  int64_t incarnation = 0;
  std::optional<int64_t> created_in_round;  // status.round when it was created; nullopt: unknown
  bool is_signed = false;  // made with an agent that knows sessions (common/api/agent_messages.h)
  bool is_encrypted = false;  // and that wants them encrypted
  bool is_warned = false;     // kPreemptionWarning
  std::string phase;          // Pending, Running, Succeeded, Failed, Unknown
  std::string ip;
  std::string node_name;
  bool scheduled = false;
  std::string unscheduled_reason;  // the scheduler's message
  bool terminating = false;
  std::optional<WallTime> gone_by;     // when a terminating pod's grace period ends
  std::optional<WallTime> created_at;  // by the server's clock
  std::optional<TimePoint> seen_at{};  // when this process first saw it; not from the document
  // Exit code and end time of the container `node`, once it has ended. The end is final, since
  // restartPolicy is Never, even if other containers keep the pod in phase Running.
  std::optional<int64_t> exit_code;
  std::optional<WallTime> ended_at;
  std::string reason;   // from the kubelet or the container: OOMKilled, Error, Evicted, ...
  std::string message;  // the termination message, or why the kubelet ended it
  // Reason of the DisruptionTarget condition: PreemptionByScheduler, ... (servers from 1.25 on)
  std::string disruption;
  // Why the first container that can't start is waiting: ErrImagePull, ... Init containers come
  // first.
  std::string waiting;
  std::string waiting_message;

  bool finished() const { return phase == "Succeeded" || phase == "Failed"; }
  bool live() const { return !finished() && !terminating; }
  // True if the pod's agent may be reachable.
  bool serves() const { return live() && !exit_code; }
  // An agent exits with 0 only after its workers have.
  bool ended_well() const { return phase == "Succeeded" || (phase == "Running" && exit_code == 0); }

  bool operator==(const PodView&) const = default;
};

// Returns nullopt for a pod without our labels. Treats members that are missing or of another type
// as absent: an API server wrote them, and a newer one may write them differently.
std::optional<PodView> pod_view_from_json(const Json& pod);

// Returns what pod_view_from_json() reads from a TrainingJob's Pod, plus its versions, its owner
// and our own labels and annotations: a small part of the Pod. For any other Pod, returns only its
// names and version, even if somebody labelled it as ours.
Json trimmed_pod(const Json& pod);

// Return the controller in metadata.ownerReferences; empty if there is none.
std::string controller_uid(const Json& object);
std::string controller_name(const Json& object);

}  // namespace lockstep::plan
