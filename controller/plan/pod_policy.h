#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/training_job.h"

namespace lockstep::plan {

// The Pod Security Standard that the pods of jobs must meet.
enum class PodPolicyLevel { kPrivileged, kBaseline, kRestricted };

// Returns the level of that name (privileged, baseline, restricted).
std::optional<PodPolicyLevel> pod_policy_level(std::string_view name);
std::string_view pod_policy_name(PodPolicyLevel level);

// The installation's limits of spec.podTemplate.
struct PodPolicy {
  PodPolicyLevel level = PodPolicyLevel::kBaseline;
  // Service accounts that jobs may name in addition to `default`: NAME or NAMESPACE/NAME, where
  // either may be "*".
  std::vector<std::string> service_accounts{};
};

// Returns for what the policy refuses the job's pods, each problem by its path in spec.podTemplate;
// empty if they are admitted. Checks the pod as it would be created, because podTemplate may remove
// what our own pods set. `privileged` refuses nothing. The other levels refuse:
// - what the Pod Security Standard of that name refuses (pod_security.h)
// - service accounts that are not listed, because a pod gets the token of its account
// - Secrets with names like those of jobs' tokens, with which one job could command the agents of
//   another
Problems pod_policy_problems(const TrainingJob& job, const PodPolicy& policy);

}  // namespace lockstep::plan
