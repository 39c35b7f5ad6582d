#include "controller/plan/pod_failure.h"

#include <string_view>

#include "common/api/worker_config.h"

namespace lockstep::plan {
namespace {

struct Name {
  std::string_view theirs;
  const char* ours;
};

constexpr Name kDisruptions[] = {{"PreemptionByScheduler", "Preempted"},
                                 {"PreemptionByKubeScheduler", "Preempted"},  // Kubernetes 1.25
                                 {"EvictionByEvictionAPI", "Evicted"},
                                 {"DeletionByTaintManager", "NodeTainted"},
                                 {"DeletionByPodGC", "NodeDeleted"}};

constexpr Name kPodReasons[] = {{"Evicted", "Evicted"},
                                {"Preempting", "Preempted"},
                                {"NodeLost", "NodeNotReady"},
                                {"NodeShutdown", "NodeShutdown"},
                                {"Shutdown", "NodeShutdown"},
                                {"Terminated", "NodeShutdown"},
                                {"NodeAffinity", "PodRejected"},
                                {"TopologyAffinityError", "PodRejected"},
                                {"UnexpectedAdmissionError", "PodRejected"},
                                {"NoAddress", "NoAddress"},
                                {"OOMKilled", "OOMKilled"},
                                {"StartError", "StartError"},
                                {"ContainerCannotRun", "StartError"}};

constexpr Name kWaiting[] = {{"ErrImagePull", "ImagePullFailed"},
                             {"ImagePullBackOff", "ImagePullFailed"},
                             {"InvalidImageName", "ImagePullFailed"},
                             {"ErrImageNeverPull", "ImagePullFailed"},
                             {"ImageInspectError", "ImagePullFailed"},
                             {"RegistryUnavailable", "ImagePullFailed"},
                             {"SignatureValidationFailed", "ImagePullFailed"}};

template <size_t kSize>
const char* find(const Name (&names)[kSize], std::string_view theirs) {
  for (const Name& name : names) {
    if (name.theirs == theirs) return name.ours;
  }
  return nullptr;
}

// The container of a pod that is deleted ends because of that, unless it ended with another code.
bool ended_by_deletion(const PodView& pod) {
  constexpr int64_t kExitKilled = 137;
  return pod.terminating && (pod.exit_code == kExitStopped || pod.exit_code == kExitKilled);
}

}  // namespace

const char* end_of_pod(const PodView& pod) {
  if (const char* name = find(kDisruptions, pod.disruption)) return name;
  if (const char* name = find(kPodReasons, pod.reason)) return name;
  if (std::string_view(pod.reason).starts_with("OutOf")) return "PodRejected";
  if (pod.disruption == "TerminationByKubelet") return "Evicted";
  const bool has_ended = pod.phase == "Failed" || (pod.exit_code && !pod.terminating);
  if (has_ended && !ended_by_deletion(pod)) return "PodFailed";
  return pod.is_warned ? "Preempted" : "PodDeleted";
}

const char* start_trouble(const PodView& pod) {
  if (pod.phase != "Pending" || pod.waiting.empty()) return nullptr;
  const char* name = find(kWaiting, pod.waiting);
  return name != nullptr ? name : "ContainerCreateFailed";
}

}  // namespace lockstep::plan
