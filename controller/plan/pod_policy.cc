#include "controller/plan/pod_policy.h"

#include <algorithm>
#include <array>
#include <utility>

#include "controller/plan/names.h"
#include "controller/plan/pod_security.h"
#include "controller/plan/pod_template.h"

namespace lockstep::plan {
namespace {

constexpr std::array<std::pair<std::string_view, PodPolicyLevel>, 3> kLevels{
    {{"privileged", PodPolicyLevel::kPrivileged},
     {"baseline", PodPolicyLevel::kBaseline},
     {"restricted", PodPolicyLevel::kRestricted}}};

bool matches(std::string_view pattern, std::string_view name) {
  return pattern == "*" || pattern == name;
}

bool is_listed(const std::vector<std::string>& accounts, std::string_view namespace_,
               std::string_view name) {
  return std::ranges::any_of(accounts, [&](std::string_view entry) {
    const size_t slash = entry.find('/');
    if (slash == std::string_view::npos) return matches(entry, name);
    return matches(entry.substr(0, slash), namespace_) && matches(entry.substr(slash + 1), name);
  });
}

void check_service_account(const TrainingJob& job, const PodPolicy& policy, CheckedPod& pod) {
  for (const char* key : {"serviceAccountName", "serviceAccount"}) {
    const Json& value = member_of(pod.spec(), key);
    if (value.is_null() || value == "" || value == "default") continue;
    const bool is_allowed =
        value.is_string() && is_listed(policy.service_accounts, job.metadata.namespace_,
                                       value.get_ref<const std::string&>());
    if (is_allowed) continue;
    pod.refuse(std::string(kPodPath) + "." + key, value,
               "use the account \"default\", or add the account to the installation's "
               "jobs.serviceAccounts");
  }
}

// Finds references to Secrets wherever they are: a volume's secretName, and the name in a member
// such as secret, secretRef or imagePullSecrets.
void check_secrets(const Json& value, const std::string& path, bool in_secret, CheckedPod& pod) {
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      check_secrets(value[i], path + "[" + std::to_string(i) + "]", in_secret, pod);
    }
  }
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.items()) {
    const bool is_name = key == "secretName" || (in_secret && key == "name");
    const std::string here = join_path(path, key);
    if (is_name && member.is_string() &&
        is_token_secret_name(member.get_ref<const std::string&>())) {
      pod.refuse(here, member, "jobs' tokens have such names; rename the Secret");
      continue;
    }
    check_secrets(member, here, key.find("ecret") != std::string::npos, pod);
  }
}

}  // namespace

std::optional<PodPolicyLevel> pod_policy_level(std::string_view name) {
  for (const auto& [known, level] : kLevels) {
    if (known == name) return level;
  }
  return std::nullopt;
}

std::string_view pod_policy_name(PodPolicyLevel level) {
  for (const auto& [name, known] : kLevels) {
    if (known == level) return name;
  }
  return "";
}

Problems pod_policy_problems(const TrainingJob& job, const PodPolicy& policy) {
  if (policy.level == PodPolicyLevel::kPrivileged) return {};
  const Json& given = job.spec.podTemplate;
  // Without an injected agent: its container is as restricted as `node`.
  const Json pod = make_worker_pod(job, {});
  CheckedPod checked(pod, given, pod_policy_name(policy.level));
  check_baseline(checked);
  if (policy.level == PodPolicyLevel::kRestricted) check_restricted(checked);
  check_service_account(job, policy, checked);
  check_secrets(member_of(given, "spec"), kPodPath, false, checked);
  return checked.take_problems();
}

}  // namespace lockstep::plan
