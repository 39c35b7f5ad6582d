#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep {

// What the plan needs to know of one Kubernetes Pod.
struct PodView {
  std::string name;
  std::string uid;
  std::string owner_uid;  // of its controller, empty: none
  int64_t node_index = -1;
  int64_t incarnation = 0;
  std::optional<int64_t> created_in_round;  // status.round when it was created; nullopt: unknown
  std::string phase;                        // Pending, Running, Succeeded, Failed, Unknown
  std::string ip;
  std::string node_name;
  bool scheduled = false;
  std::string unscheduled_reason;  // the scheduler's own words
  bool terminating = false;
  std::optional<WallTime> gone_by;     // when a terminating pod's grace period ends
  std::optional<WallTime> created_at;  // by the server's clock
  std::optional<TimePoint> seen_at{};  // since when this process knows of it; not of the document
  // Of the container `node`, once it has ended: for good, as restartPolicy is Never, whether or not
  // other containers keep the pod in phase Running.
  std::optional<int64_t> exit_code;
  std::optional<WallTime> ended_at;
  std::string reason;   // the kubelet's or the container's own: OOMKilled, Error, Evicted, ...
  std::string message;  // the termination message, or why the kubelet ended it
  // Of the DisruptionTarget condition: PreemptionByScheduler, ... (servers from 1.25 on)
  std::string disruption;
  // Of the first container, init containers in front, that can't start: ErrImagePull, ...
  std::string waiting;
  std::string waiting_message;

  bool finished() const { return phase == "Succeeded" || phase == "Failed"; }
  bool live() const { return !finished() && !terminating; }
  // Its agent may be there.
  bool serves() const { return live() && !exit_code; }
  // An agent leaves with 0 only after its workers have.
  bool ended_well() const { return phase == "Succeeded" || (phase == "Running" && exit_code == 0); }

  bool operator==(const PodView&) const = default;
};

// nullopt for a pod without our labels. Members that are missing or of another type are as if
// absent: an API server wrote them, and a newer one may write them differently.
std::optional<PodView> pod_view_from_json(const Json& pod);

// What pod_view_from_json() reads of a TrainingJob's Pod, with its versions, its owner and our own
// labels and annotations: a small part of it. Of any other Pod, whoever labelled it as ours,
// nothing but its names and version.
Json trimmed_pod(const Json& pod);

// metadata.ownerReferences' controller; empty where there is none.
std::string controller_uid(const Json& object);
std::string controller_name(const Json& object);

}  // namespace lockstep
