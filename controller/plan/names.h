#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/api/agent_messages.h"
#include "common/api/training_job.h"
#include "common/base/sha256.h"

namespace lockstep::plan {

// Names and labels of a job's child objects. They are deterministic, so that creating a child from
// a stale cache fails with AlreadyExists instead of making a duplicate.
inline constexpr char kJobNameLabel[] = "lockstep.dev/job-name";
inline constexpr char kRoleLabel[] = "lockstep.dev/role";
inline constexpr char kNodeIndexLabel[] = "lockstep.dev/node-index";
inline constexpr char kIncarnationLabel[] = "lockstep.dev/incarnation";
inline constexpr char kCreatedInRoundAnnotation[] = "lockstep.dev/created-in-round";
// Its value is kRequestsSigned if the pod's agent knows sessions, kRequestsEncrypted if it refuses
// those without encryption.
inline constexpr char kRequestsAnnotation[] = "lockstep.dev/requests";
// Somebody's warning that the pod will be preempted, as before a spot instance ends; not "false".
inline constexpr char kPreemptionWarning[] = "lockstep.dev/preemption-warning";
inline constexpr char kManagedByLabel[] = "app.kubernetes.io/managed-by";
inline constexpr char kManagedByValue[] = "lockstep";
inline constexpr char kOurLabelPrefix[] = "lockstep.dev/";
// The value of spec.managedBy for jobs of this controller.
inline constexpr char kControllerName[] = "lockstep.dev/controller";

inline constexpr char kNodeContainer[] = "node";
inline constexpr char kBundleFolder[] = "/opt/lockstep";
inline constexpr char kAgentPath[] = "/opt/lockstep/bin/lockstep-agent";
inline constexpr char kAgentCopier[] = "lockstep-agent";  // init container and its volume
inline constexpr char kDefaultImage[] = "lockstep";
inline constexpr char kTokenFolder[] = "/var/run/lockstep/token";
inline constexpr char kTokenKey[] = "token";
inline constexpr char kWorkFolder[] = "/var/lib/lockstep";
inline constexpr char kTemporaryVolume[] = "lockstep-tmp";
// Added to the job's grace period in the pod's, so that the agent can report and exit.
inline constexpr int64_t kAgentMarginSeconds = 5;

// Returns the pods' terminationGracePeriodSeconds.
inline int64_t pod_grace_seconds(const TrainingJobSpec& spec) {
  return grace_seconds(spec) + kAgentMarginSeconds;
}

using lockstep::worker_pod_name;

// Returns the name of the pod of a node index of the job.
inline std::string member_pod_name(const TrainingJob& job, int64_t index, int64_t incarnation) {
  return pod_name(job.metadata.name, role_of_node(job.spec, index), index, incarnation);
}

// Names that contain a digest of the job's UID. After a job is deleted and recreated under the same
// name, the garbage collector may not have removed the first one's objects yet: its Secret has
// another token, and both belong to the first job.
inline constexpr char kTokenInfix[] = "-token-";
inline constexpr char kNetworkPolicyInfix[] = "-network-";
inline constexpr size_t kUidHexDigits = 8;
inline std::string token_secret_name(const ObjectMeta& job) {
  return job.name + kTokenInfix + hex(sha256(job.uid)).substr(0, kUidHexDigits);
}
inline std::string network_policy_name(const ObjectMeta& job) {
  return job.name + kNetworkPolicyInfix + hex(sha256(job.uid)).substr(0, kUidHexDigits);
}

// Returns whether some job's token could have this name.
inline bool is_token_secret_name(std::string_view name) {
  const std::string_view infix = kTokenInfix;
  if (name.size() <= infix.size() + kUidHexDigits) return false;
  const std::string_view digits = name.substr(name.size() - kUidHexDigits);
  name.remove_suffix(kUidHexDigits);
  return name.ends_with(infix) &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace lockstep::plan
