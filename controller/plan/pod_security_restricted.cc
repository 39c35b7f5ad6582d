#include <algorithm>
#include <array>
#include <string>

#include "controller/plan/pod_security.h"

namespace lockstep::plan {
namespace {

void volume_types(CheckedPod& pod) {
  constexpr std::array<std::string_view, 9> kAllowed{"name",
                                                     "configMap",
                                                     "csi",
                                                     "downwardAPI",
                                                     "emptyDir",
                                                     "ephemeral",
                                                     "persistentVolumeClaim",
                                                     "projected",
                                                     "secret"};
  for (const Json& volume : member_of(pod.spec(), "volumes")) {
    if (!volume.is_object()) continue;
    for (const auto& [key, value] : volume.items()) {
      const bool is_allowed = std::ranges::find(kAllowed, key) != kAllowed.end();
      // Baseline has refused a hostPath already.
      if (is_allowed || value.is_null() || key == "hostPath") continue;
      pod.refuse(pod.path_of("volumes", volume) + "." + key, value,
                 "use a persistentVolumeClaim or another volume of Kubernetes");
    }
  }
}

void privilege_escalation(CheckedPod& pod) {
  for (const CheckedContainer& container : pod.containers()) {
    const Json& value =
        member_of(member_of(container.json, "securityContext"), "allowPrivilegeEscalation");
    const std::string path = container.path + ".securityContext.allowPrivilegeEscalation";
    if (value.is_null()) {
      pod.require(path, "false");
    } else if (value != false) {
      pod.refuse(path, value, "expected false");
    }
  }
}

// A container that does not set it has the value of the pod.
void non_root(CheckedPod& pod) {
  bool is_missing = false;
  const Json& of_pod = member_of(pod.context(), "runAsNonRoot");
  visit_contexts(pod, [&](const Json& context, const std::string& path) {
    const Json& own = member_of(context, "runAsNonRoot");
    if (!own.is_null() && own != true) pod.refuse(path + ".runAsNonRoot", own, "expected true");
    is_missing |= &context != &pod.context() && own.is_null() && of_pod.is_null();
  });
  if (!is_missing) return;
  pod.require(std::string(kPodPath) + ".securityContext.runAsNonRoot",
              "true, for the pod or in each container");
}

void user(CheckedPod& pod) {
  visit_contexts(pod, [&pod](const Json& context, const std::string& path) {
    const Json& value = member_of(context, "runAsUser");
    if (value == 0) pod.refuse(path + ".runAsUser", value, "expected another user than root");
  });
}

void seccomp_is_set(CheckedPod& pod) {
  const auto type_of = [](const Json& context) -> const Json& {
    return member_of(member_of(context, "seccompProfile"), "type");
  };
  if (!type_of(pod.context()).is_null()) return;
  const bool all_set = std::ranges::all_of(pod.containers(), [&](const CheckedContainer& each) {
    return !type_of(member_of(each.json, "securityContext")).is_null();
  });
  if (all_set) return;
  pod.require(std::string(kPodPath) + ".securityContext.seccompProfile.type",
              "RuntimeDefault or Localhost, for the pod or in each container");
}

void capabilities(CheckedPod& pod) {
  for (const CheckedContainer& container : pod.containers()) {
    const Json& list = member_of(member_of(container.json, "securityContext"), "capabilities");
    const std::string path = container.path + ".securityContext.capabilities";
    const Json& dropped = member_of(list, "drop");
    if (std::ranges::none_of(dropped, [](const Json& each) { return each == "ALL"; })) {
      pod.require(path + ".drop", "[ALL]");
    }
    for (const Json& added : member_of(list, "add")) {
      if (added == "NET_BIND_SERVICE") continue;
      pod.refuse(path + ".add", added, "expected only NET_BIND_SERVICE");
    }
  }
}

}  // namespace

void check_restricted(CheckedPod& pod) {
  for (const auto check :
       {volume_types, privilege_escalation, non_root, user, seccomp_is_set, capabilities}) {
    check(pod);
  }
}

}  // namespace lockstep::plan
