#include "tests/controller/plan/pod_security.h"

#include <array>
#include <set>

namespace lockstep::plan {
namespace {

using Problems = std::vector<std::string>;

const std::set<std::string> kVolumes = {"configMap", "csi",       "downwardAPI",
                                        "emptyDir",  "ephemeral", "persistentVolumeClaim",
                                        "projected", "secret"};
const std::set<std::string> kSeccomp = {"RuntimeDefault", "Localhost"};
const std::set<std::string> kSysctls = {
    "kernel.shm_rmid_forced",           "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",        "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",     "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",      "net.ipv4.tcp_syncookies"};
const std::set<std::string> kSeLinuxTypes = {"", "container_t", "container_init_t",
                                             "container_kvm_t", "container_engine_t"};

const Json& member(const Json& object, const char* key) {
  static const Json kNothing;
  const Json* found = find_member(object, key);
  return found == nullptr ? kNothing : *found;
}

// Checks the fields that the securityContexts of containers and pods have in common.
void check_shared(const Json& context, const std::string& at, Problems& problems) {
  if (member(context, "runAsUser") == 0) problems.push_back(at + ".runAsUser: may not be 0");
  const Json& se_linux = member(context, "seLinuxOptions");
  if (!kSeLinuxTypes.contains(string_or(se_linux, "type", "")) ||
      !string_or(se_linux, "user", "").empty() || !string_or(se_linux, "role", "").empty()) {
    problems.push_back(at + ".seLinuxOptions: a type of containers at most");
  }
  if (string_or(member(context, "appArmorProfile"), "type", "") == "Unconfined") {
    problems.push_back(at + ".appArmorProfile.type: may not be Unconfined");
  }
  if (member(member(context, "windowsOptions"), "hostProcess") == true) {
    problems.push_back(at + ".windowsOptions.hostProcess: may not be true");
  }
}

void check_capabilities(const Json& capabilities, const std::string& at, Problems& problems) {
  bool drops_all = false;
  for (const Json& dropped : member(capabilities, "drop")) drops_all |= dropped == "ALL";
  if (!drops_all) problems.push_back(at + ".drop: expected ALL");
  for (const Json& added : member(capabilities, "add")) {
    if (added != "NET_BIND_SERVICE") problems.push_back(at + ".add: " + added.dump());
  }
}

void check_handlers(const Json& container, const std::string& at, Problems& problems) {
  for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) {
    for (const char* by : {"httpGet", "tcpSocket"}) {
      if (!string_or(member(member(container, probe), by), "host", "").empty()) {
        problems.push_back(at + "." + probe + "." + by + ".host: may not be set");
      }
    }
  }
  for (const char* hook : {"postStart", "preStop"}) {
    for (const char* by : {"httpGet", "tcpSocket"}) {
      const Json& handler = member(member(member(container, "lifecycle"), hook), by);
      if (!string_or(handler, "host", "").empty()) {
        problems.push_back(at + ".lifecycle." + hook + "." + by + ".host: may not be set");
      }
    }
  }
}

void check_container(const Json& container, const Json& pod_context, const std::string& at,
                     Problems& problems) {
  const Json& context = member(container, "securityContext");
  const std::string here = at + ".securityContext";
  check_shared(context, here, problems);
  check_capabilities(member(context, "capabilities"), here + ".capabilities", problems);
  check_handlers(container, at, problems);
  if (member(context, "privileged") == true) {
    problems.push_back(here + ".privileged: may not be true");
  }
  if (member(context, "allowPrivilegeEscalation") != false) {
    problems.push_back(here + ".allowPrivilegeEscalation: expected false");
  }
  const Json& own = member(context, "runAsNonRoot");
  if (own == false || (own.is_null() && member(pod_context, "runAsNonRoot") != true)) {
    problems.push_back(here + ".runAsNonRoot: expected true, here or in the pod");
  }
  const std::string seccomp =
      string_or(member(context, "seccompProfile"), "type",
                string_or(member(pod_context, "seccompProfile"), "type", ""));
  if (!kSeccomp.contains(seccomp)) {
    problems.push_back(here + ".seccompProfile.type: expected RuntimeDefault or Localhost");
  }
  if (string_or(context, "procMount", "Default") != "Default") {
    problems.push_back(here + ".procMount: expected Default");
  }
  for (const Json& port : member(container, "ports")) {
    if (const Json& host = member(port, "hostPort"); !host.is_null() && host != 0) {
      problems.push_back(at + ".ports: hostPort " + host.dump());
    }
  }
}

void check_volumes(const Json& volumes, Problems& problems) {
  for (const Json& volume : volumes) {
    for (const auto& [key, value] : volume.items()) {
      if (key != "name" && !kVolumes.contains(key)) {
        problems.push_back("volumes: " + string_or(volume, "name", "?") + " is of type " + key);
      }
    }
  }
}

}  // namespace

std::vector<std::string> restricted_problems(const Json& pod_spec) {
  Problems problems;
  for (const char* key : {"hostNetwork", "hostPID", "hostIPC"}) {
    if (member(pod_spec, key) == true) problems.push_back(std::string(key) + ": may not be true");
  }
  const Json& context = member(pod_spec, "securityContext");
  check_shared(context, "securityContext", problems);
  for (const Json& sysctl : member(context, "sysctls")) {
    if (!kSysctls.contains(string_or(sysctl, "name", ""))) {
      problems.push_back("securityContext.sysctls: " + sysctl.dump());
    }
  }
  check_volumes(member(pod_spec, "volumes"), problems);
  size_t count = 0;
  for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
    for (const Json& container : member(pod_spec, list)) {
      check_container(container, context,
                      std::string(list) + "[" + string_or(container, "name", "?") + "]", problems);
      ++count;
    }
  }
  if (count == 0) problems.push_back("containers: expected one at least");
  return problems;
}

}  // namespace lockstep::plan
