#include "local/node/pod_plan.h"

#include <algorithm>
#include <array>
#include <set>

#include "local/node/fields.h"

namespace lockstep::local {
namespace {

constexpr size_t kContainersMax = 64;
constexpr int64_t kSecondsMax = 1'000'000'000;
constexpr std::array kVolumeKinds = {"secret",      "configMap", "emptyDir",
                                     "downwardAPI", "projected", "hostPath"};

Duration seconds_of(const Json& object, std::string_view key, int64_t fallback, int64_t least) {
  return std::chrono::seconds(std::clamp(int_or(object, key, fallback), least, kSecondsMax));
}

Result<std::vector<std::string>> words(const std::string& path, const Json& list) {
  std::vector<std::string> texts;
  for (const Json& word : list) {
    if (!word.is_string() || word.get_ref<const std::string&>().find('\0') != std::string::npos)
      return cannot(path, "needs texts");
    texts.push_back(word);
  }
  return texts;
}

// Reads a port: a number, or the name of one of the container's ports.
Result<uint16_t> port_of(const std::string& path, const Json& action, const Json& container) {
  const Json* port = find_member(action, "port");
  int64_t number = port != nullptr && port->is_number_integer() ? port->get<int64_t>() : 0;
  if (port != nullptr && port->is_string()) {
    for (const Json& candidate : array_of(container, "ports")) {
      if (string_or(candidate, "name", "") == port->get<std::string>())
        number = int_or(candidate, "containerPort", 0);
    }
  }
  if (number < 1 || number > 65535)
    return cannot(path + ".port",
                  "needs a port from 1 to 65535, or the name of one of the container's ports");
  return static_cast<uint16_t>(number);
}

Status read_action(const std::string& path, const Json& probe, const Json& container,
                   ProbePlan& plan) {
  if (const Json* exec = find_member(probe, "exec")) {
    TRY_ASSIGN(plan.command, words(path + ".exec.command", array_of(*exec, "command")));
    if (plan.command.empty()) return cannot(path + ".exec.command", "needs a command");
    return {};
  }
  const Json* http = find_member(probe, "httpGet");
  const Json* action = http != nullptr ? http : find_member(probe, "tcpSocket");
  if (action == nullptr) return cannot(path, "supports only exec, httpGet and tcpSocket");
  plan.kind = http != nullptr ? ProbePlan::Kind::kHttp : ProbePlan::Kind::kTcp;
  plan.host = string_or(*action, "host", "");
  TRY_ASSIGN(plan.port, port_of(path, *action, container));
  if (http == nullptr) return {};
  plan.path = string_or(*http, "path", "/");
  if (plan.path.empty() || plan.path[0] != '/') plan.path.insert(0, "/");
  if (string_or(*http, "scheme", "HTTP") != "HTTP")
    return cannot(path + ".httpGet.scheme", "supports only HTTP");
  for (const Json& header : array_of(*http, "httpHeaders"))
    plan.headers.emplace_back(string_or(header, "name", ""), string_or(header, "value", ""));
  return {};
}

Result<std::optional<ProbePlan>> plan_probe(const std::string& at, const Json& container,
                                            const char* key) {
  const Json* probe = find_member(container, key);
  if (probe == nullptr || !probe->is_object()) return std::optional<ProbePlan>();
  ProbePlan plan;
  TRY(read_action(at + "." + key, *probe, container, plan));
  plan.initial_delay = seconds_of(*probe, "initialDelaySeconds", 0, 0);
  plan.period = seconds_of(*probe, "periodSeconds", 10, 1);
  plan.timeout = seconds_of(*probe, "timeoutSeconds", 1, 1);
  plan.success_threshold = std::max<int64_t>(1, int_or(*probe, "successThreshold", 1));
  plan.failure_threshold = std::max<int64_t>(1, int_or(*probe, "failureThreshold", 3));
  if (probe->contains("terminationGracePeriodSeconds"))
    plan.grace_seconds = int_or(*probe, "terminationGracePeriodSeconds", 30);
  return std::optional<ProbePlan>(std::move(plan));
}

Result<std::vector<std::string>> plan_hook(const std::string& at, const Json& container,
                                           const char* key) {
  const Json* hook = find_member(object_of(container, "lifecycle"), key);
  if (hook == nullptr || !hook->is_object()) return std::vector<std::string>();
  std::string path = at + ".lifecycle." + key;
  if (!hook->contains("exec")) return cannot(path, "supports only exec");
  return words(path + ".exec.command", array_of(object_of(*hook, "exec"), "command"));
}

Result<MountPlan> plan_mount(const std::string& at, const Json& mount) {
  MountPlan plan{string_or(mount, "mountPath", ""), string_or(mount, "name", ""),
                 string_or(mount, "subPath", "")};
  std::string path = at + ".volumeMounts " + plan.volume;
  while (plan.mount_path.size() > 1 && plan.mount_path.ends_with('/')) plan.mount_path.pop_back();
  if (!is_inside_path(plan.mount_path))
    return cannot(path, "needs an absolute mountPath without ..");
  if (!plan.sub_path.empty() && !is_inside_path("/" + plan.sub_path))
    return cannot(path, "needs a subPath without ..");
  if (!string_or(mount, "subPathExpr", "").empty())
    return cannot(path + ".subPathExpr", "does not support it");
  return plan;
}

Status read_parts(const std::string& at, const Json& container, ContainerPlan& plan) {
  TRY_ASSIGN(plan.startup, plan_probe(at, container, "startupProbe"));
  TRY_ASSIGN(plan.liveness, plan_probe(at, container, "livenessProbe"));
  TRY_ASSIGN(plan.readiness, plan_probe(at, container, "readinessProbe"));
  TRY_ASSIGN(plan.post_start, plan_hook(at, container, "postStart"));
  TRY_ASSIGN(plan.pre_stop, plan_hook(at, container, "preStop"));
  for (const Json& mount : array_of(container, "volumeMounts")) {
    TRY_ASSIGN(MountPlan planned, plan_mount(at, mount));
    plan.mounts.push_back(std::move(planned));
  }
  std::sort(plan.mounts.begin(), plan.mounts.end(),
            [](const MountPlan& a, const MountPlan& b) { return a.mount_path < b.mount_path; });
  return {};
}

Result<ContainerPlan> plan_container(const std::string& at, const Json& container) {
  ContainerPlan plan;
  plan.name = string_or(container, "name", "");
  plan.image = string_or(container, "image", "");
  // The name becomes a folder and part of a file name.
  if (plan.name.empty() || plan.name.find('/') != std::string::npos || plan.name[0] == '.')
    return cannot(at + ".name", "needs a name that has no / and does not begin with a dot");
  if (array_of(container, "command").empty())
    return cannot(at + ".command", "has no images, so it needs a command");
  for (const char* part : {"command", "args"}) {
    TRY_ASSIGN(std::vector<std::string> more, words(at + "." + part, array_of(container, part)));
    plan.command.insert(plan.command.end(), more.begin(), more.end());
  }
  if (container.contains("restartPolicy"))
    return cannot(at + ".restartPolicy",
                  "does not support sidecars (init containers with a restartPolicy)");
  plan.environment = array_of(container, "env");
  plan.environment_from = array_of(container, "envFrom");
  TRY(read_parts(at, container, plan));
  plan.working_folder = string_or(container, "workingDir", "");
  plan.termination_message_path =
      string_or(container, "terminationMessagePath", plan.termination_message_path);
  if (!is_inside_path(plan.termination_message_path))
    return cannot(at + ".terminationMessagePath", "needs an absolute path without ..");
  plan.message_falls_back_to_log =
      string_or(container, "terminationMessagePolicy", "") == "FallbackToLogsOnError";
  const Json& resources = object_of(container, "resources");
  plan.limits = resources_from_json(object_of(resources, "limits"));
  plan.requests = resources_from_json(object_of(resources, "requests"));
  return plan;
}

Status plan_containers(const Json& spec, const char* key, std::vector<ContainerPlan>& plans) {
  const Json& list = array_of(spec, key);
  if (list.size() > kContainersMax)
    return cannot(std::string("spec.") + key,
                  "runs at most " + std::to_string(kContainersMax) + " containers");
  for (size_t i = 0; i < list.size(); ++i) {
    std::string at = std::string("spec.") + key + "[" + std::to_string(i) + "]";
    TRY_ASSIGN(ContainerPlan plan, plan_container(at, list[i]));
    plans.push_back(std::move(plan));
  }
  return {};
}

Status plan_volumes(const Json& spec, PodPlan& plan) {
  std::set<std::string> mounted;
  for (const auto* containers : {&plan.init_containers, &plan.containers}) {
    for (const ContainerPlan& container : *containers) {
      for (const MountPlan& mount : container.mounts) mounted.insert(mount.volume);
    }
  }
  for (const Json& volume : array_of(spec, "volumes")) {
    std::string name = string_or(volume, "name", "");
    if (mounted.erase(name) == 0) continue;
    if (name.empty() || !is_inside_path("/" + name) || name.find('/') != std::string::npos)
      return cannot("volumes " + name, "needs a name that can be a file name");
    bool known = std::any_of(kVolumeKinds.begin(), kVolumeKinds.end(),
                             [&](const char* kind) { return volume.contains(kind); });
    if (!known)
      return cannot("volumes " + name,
                    "supports only secret, configMap, emptyDir, downwardAPI, projected and "
                    "hostPath volumes");
    plan.volumes.push_back(volume);
  }
  if (!mounted.empty())
    return cannot("volumeMounts " + *mounted.begin(), "needs this volume in spec.volumes");
  return {};
}

}  // namespace

Error cannot(const std::string& path, const std::string& why) {
  return invalid(path + ": a local node " + why);
}

bool is_inside_path(const std::string& path) {
  return path.starts_with("/") && path.size() > 1 && path.find("/..") == std::string::npos &&
         path.find('\0') == std::string::npos;
}

std::vector<uint16_t> container_ports(const Json& pod) {
  std::vector<uint16_t> ports;
  for (const Json& container : array_of(object_of(pod, "spec"), "containers")) {
    for (const Json& port : array_of(container, "ports")) {
      int64_t number = int_or(port, "containerPort", 0);
      if (number > 0 && number < 65536) ports.push_back(static_cast<uint16_t>(number));
    }
  }
  return ports;
}

Result<PodPlan> plan_pod(const Json& pod) {
  const Json& metadata = object_of(pod, "metadata");
  const Json& spec = object_of(pod, "spec");
  PodPlan plan;
  plan.namespace_ = string_or(metadata, "namespace", "");
  plan.name = string_or(metadata, "name", "");
  plan.uid = string_or(metadata, "uid", "");
  TRY(plan_containers(spec, "initContainers", plan.init_containers));
  TRY(plan_containers(spec, "containers", plan.containers));
  if (plan.containers.empty()) return cannot("spec.containers", "needs a container");
  TRY(plan_volumes(spec, plan));
  std::string policy = string_or(spec, "restartPolicy", "Always");
  plan.restart_policy = policy == "Never"       ? RestartPolicy::kNever
                        : policy == "OnFailure" ? RestartPolicy::kOnFailure
                                                : RestartPolicy::kAlways;
  plan.ports = container_ports(pod);
  plan.grace_seconds =
      std::clamp<int64_t>(int_or(spec, "terminationGracePeriodSeconds", 30), 0, kSecondsMax);
  if (spec.contains("activeDeadlineSeconds") && spec["activeDeadlineSeconds"].is_number())
    plan.active_deadline_seconds = int_or(spec, "activeDeadlineSeconds", 0);
  return plan;
}

}  // namespace lockstep::local
