#include <algorithm>
#include <array>
#include <string>

#include "controller/plan/pod_security.h"

namespace lockstep::plan {
namespace {

constexpr std::string_view kLeaveOut = "leave it out";

template <size_t kCount>
bool is_one_of(const Json& value, const std::array<std::string_view, kCount>& allowed) {
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  return std::ranges::find(allowed, text) != allowed.end();
}

void host_namespaces(CheckedPod& pod) {
  for (const char* key : {"hostNetwork", "hostPID", "hostIPC"}) {
    const Json& value = member_of(pod.spec(), key);
    if (!is_unset(value)) pod.refuse(std::string(kPodPath) + "." + key, value, kLeaveOut);
  }
}

void privileged(CheckedPod& pod) {
  for (const CheckedContainer& container : pod.containers()) {
    const Json& value = member_of(member_of(container.json, "securityContext"), "privileged");
    if (is_unset(value)) continue;
    pod.refuse(container.path + ".securityContext.privileged", value, kLeaveOut);
  }
}

void added_capabilities(CheckedPod& pod) {
  constexpr std::array<std::string_view, 13> kAllowed{
      "AUDIT_WRITE", "CHOWN",      "DAC_OVERRIDE",    "FOWNER", "FSETID",
      "KILL",        "MKNOD",      "SETFCAP",         "SETGID", "SETPCAP",
      "SETUID",      "SYS_CHROOT", "NET_BIND_SERVICE"};
  for (const CheckedContainer& container : pod.containers()) {
    const Json& context = member_of(container.json, "securityContext");
    for (const Json& added : member_of(member_of(context, "capabilities"), "add")) {
      if (is_one_of(added, kAllowed)) continue;
      pod.refuse(container.path + ".securityContext.capabilities.add", added,
                 "use only capabilities that containers have by default");
    }
  }
}

void host_path(CheckedPod& pod) {
  for (const Json& volume : member_of(pod.spec(), "volumes")) {
    const Json& value = member_of(volume, "hostPath");
    if (value.is_null()) continue;
    pod.refuse(pod.path_of("volumes", volume) + ".hostPath", value,
               "use a persistentVolumeClaim or another volume");
  }
}

void host_ports(CheckedPod& pod) {
  for (const CheckedContainer& container : pod.containers()) {
    for (const Json& port : member_of(container.json, "ports")) {
      const Json& value = member_of(port, "hostPort");
      if (value.is_null() || value == 0) continue;
      pod.refuse(container.path + ".ports.hostPort", value, kLeaveOut);
    }
  }
}

void refuse_host(const Json& handler, const std::string& path, CheckedPod& pod) {
  for (const char* by : {"httpGet", "tcpSocket"}) {
    const Json& host = member_of(member_of(handler, by), "host");
    if (host.is_null() || host == "") continue;
    pod.refuse(path + "." + by + ".host", host, "leave it out; the pod's own address is used");
  }
}

void host_probes(CheckedPod& pod) {
  for (const CheckedContainer& container : pod.containers()) {
    for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) {
      refuse_host(member_of(container.json, probe), container.path + "." + probe, pod);
    }
    for (const char* hook : {"postStart", "preStop"}) {
      refuse_host(member_of(member_of(container.json, "lifecycle"), hook),
                  container.path + ".lifecycle." + hook, pod);
    }
  }
}

constexpr std::array<std::string_view, 2> kProfiles{"RuntimeDefault", "Localhost"};

void refuse_profile(const char* key, CheckedPod& pod) {
  visit_contexts(pod, [key, &pod](const Json& context, const std::string& path) {
    const Json& type = member_of(member_of(context, key), "type");
    if (type.is_null() || is_one_of(type, kProfiles)) return;
    pod.refuse(path + "." + key + ".type", type, "expected RuntimeDefault or Localhost");
  });
}

// Servers before 1.27 take these profiles from annotations.
void refuse_annotations(std::string_view prefix, CheckedPod& pod) {
  const Json& annotations = pod.annotations();
  if (!annotations.is_object()) return;
  for (const auto& [key, value] : annotations.items()) {
    if (!key.starts_with(prefix)) continue;
    const std::string profile = value.is_string() ? value.get<std::string>() : "";
    const bool is_allowed = profile == "runtime/default" || profile == "docker/default" ||
                            profile.starts_with("localhost/");
    if (is_allowed) continue;
    pod.refuse("spec.podTemplate.metadata.annotations." + key, value,
               "expected runtime/default or localhost/...");
  }
}

void app_armor(CheckedPod& pod) {
  refuse_profile("appArmorProfile", pod);
  refuse_annotations("container.apparmor.security.beta.kubernetes.io/", pod);
}

void seccomp(CheckedPod& pod) {
  refuse_profile("seccompProfile", pod);
  refuse_annotations("seccomp.security.alpha.kubernetes.io/", pod);
  refuse_annotations("container.seccomp.security.alpha.kubernetes.io/", pod);
}

void se_linux(CheckedPod& pod) {
  constexpr std::array<std::string_view, 5> kTypes{"", "container_t", "container_init_t",
                                                   "container_kvm_t", "container_engine_t"};
  visit_contexts(pod, [&pod, &kTypes](const Json& context, const std::string& path) {
    const Json& options = member_of(context, "seLinuxOptions");
    const Json& type = member_of(options, "type");
    if (!type.is_null() && !is_one_of(type, kTypes)) {
      pod.refuse(path + ".seLinuxOptions.type", type, "expected a type of containers");
    }
    for (const char* key : {"user", "role"}) {
      const Json& value = member_of(options, key);
      if (value.is_null() || value == "") continue;
      pod.refuse(path + ".seLinuxOptions." + key, value, kLeaveOut);
    }
  });
}

void proc_mount(CheckedPod& pod) {
  for (const CheckedContainer& container : pod.containers()) {
    const Json& value = member_of(member_of(container.json, "securityContext"), "procMount");
    if (value.is_null() || value == "Default") continue;
    pod.refuse(container.path + ".securityContext.procMount", value, "expected Default");
  }
}

void sysctls(CheckedPod& pod) {
  constexpr std::array<std::string_view, 10> kSafe{
      "kernel.shm_rmid_forced",           "net.ipv4.ip_local_port_range",
      "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start",
      "net.ipv4.ping_group_range",        "net.ipv4.tcp_fin_timeout",
      "net.ipv4.tcp_keepalive_intvl",     "net.ipv4.tcp_keepalive_probes",
      "net.ipv4.tcp_keepalive_time",      "net.ipv4.tcp_syncookies"};
  for (const Json& sysctl : member_of(pod.context(), "sysctls")) {
    const Json& name = member_of(sysctl, "name");
    if (is_one_of(name, kSafe)) continue;
    pod.refuse(std::string(kPodPath) + ".securityContext.sysctls", name,
               "use only the sysctls that Kubernetes calls safe");
  }
}

void host_process(CheckedPod& pod) {
  visit_contexts(pod, [&pod](const Json& context, const std::string& path) {
    const Json& value = member_of(member_of(context, "windowsOptions"), "hostProcess");
    if (is_unset(value)) return;
    pod.refuse(path + ".windowsOptions.hostProcess", value, kLeaveOut);
  });
}

}  // namespace

void check_baseline(CheckedPod& pod) {
  for (const auto check :
       {host_process, host_namespaces, privileged, added_capabilities, host_path, host_ports,
        host_probes, app_armor, se_linux, proc_mount, seccomp, sysctls}) {
    check(pod);
  }
}

}  // namespace lockstep::plan
