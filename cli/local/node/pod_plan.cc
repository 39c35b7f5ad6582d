#include "cli/local/node/pod_plan.h"

#include <algorithm>
#include <optional>

#include "cli/local/node/fields.h"

namespace lockstep::local {
namespace {

Error cannot(const std::string& path, const std::string& why) {
  return invalid(path + ": a local node " + why);
}

// metadata.labels['x'] and the like. Source: Kubernetes, "Downward API".
Result<std::string> field_value(const Json& pod, const NodeFacts& facts, const std::string& path) {
  const Json& metadata = object_of(pod, "metadata");
  if (path == "status.podIP" || path == "status.hostIP") return facts.pod_address;
  if (path == "spec.nodeName") return facts.node_name;
  if (path == "spec.serviceAccountName")
    return string_or(object_of(pod, "spec"), "serviceAccountName", "default");
  for (const char* key : {"name", "namespace", "uid"}) {
    if (path == "metadata." + std::string(key)) return string_or(metadata, key, "");
  }
  for (const char* map : {"labels", "annotations"}) {
    std::string prefix = "metadata." + std::string(map) + "['";
    if (path.starts_with(prefix) && path.ends_with("']"))
      return string_or(object_of(metadata, map),
                       path.substr(prefix.size(), path.size() - prefix.size() - 2), "");
  }
  return cannot("fieldRef " + path, "does not know this field");
}

Status plan_environment(const Json& pod, const Json& container, const NodeFacts& facts,
                        PodPlan& plan) {
  for (const Json& entry : array_of(container, "env")) {
    std::string name = string_or(entry, "name", "");
    const Json* source = find_member(entry, "valueFrom");
    std::string value = string_or(entry, "value", "");
    if (source != nullptr) {
      const Json* field = find_member(*source, "fieldRef");
      if (field == nullptr) return cannot("env " + name, "knows values and fieldRef alone");
      TRY_ASSIGN(value, field_value(pod, facts, string_or(*field, "fieldPath", "")));
    }
    if (name.empty() || name.find('=') != std::string::npos ||
        (name + value).find('\0') != std::string::npos)
      return cannot("env " + name, "can't set a variable of this name or value");
    plan.environment.emplace_back(std::move(name), std::move(value));
  }
  return {};
}

// Absolute, and without a way out of the pod's folder.
bool is_inside_path(const std::string& path) {
  return path.starts_with("/") && path.size() > 1 && path.find("/..") == std::string::npos &&
         path.find('\0') == std::string::npos;
}

Result<VolumePlan> plan_volume(const Json& spec, const Json& mount) {
  std::string name = string_or(mount, "name", "");
  VolumePlan plan;
  plan.mount_path = string_or(mount, "mountPath", "");
  if (!is_inside_path(plan.mount_path))
    return cannot("volumeMounts " + name, "needs an absolute mountPath without ..");
  const Json& volumes = array_of(spec, "volumes");
  auto volume = std::find_if(volumes.begin(), volumes.end(), [&](const Json& candidate) {
    return string_or(candidate, "name", "") == name;
  });
  if (volume == volumes.end()) return cannot("volumeMounts " + name, "finds no such volume");
  if (const Json* secret = find_member(*volume, "secret")) {
    plan.secret = string_or(*secret, "secretName", "");
    plan.optional = bool_or(*secret, "optional", false);
    if (plan.secret.empty()) return cannot("volumes " + name, "needs a secretName");
    return plan;
  }
  if (find_member(*volume, "emptyDir") != nullptr) return plan;
  return cannot("volumes " + name, "knows secret and emptyDir volumes alone");
}

Status check_supported(const Json& spec) {
  if (array_of(spec, "containers").size() != 1)
    return cannot("spec.containers", "runs one container in a pod");
  if (!array_of(spec, "initContainers").empty())
    return cannot("spec.initContainers", "runs no init containers");
  if (string_or(spec, "restartPolicy", "Always") != "Never")
    return cannot("spec.restartPolicy", "runs pods with Never alone");
  return {};
}

}  // namespace

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

Result<PodPlan> plan_pod(const Json& pod, const NodeFacts& facts) {
  const Json& metadata = object_of(pod, "metadata");
  const Json& spec = object_of(pod, "spec");
  TRY(check_supported(spec));
  const Json& container = array_of(spec, "containers")[0];
  PodPlan plan;
  plan.namespace_ = string_or(metadata, "namespace", "");
  plan.name = string_or(metadata, "name", "");
  plan.uid = string_or(metadata, "uid", "");
  plan.container = string_or(container, "name", "");
  for (const char* part : {"command", "args"}) {
    for (const Json& word : array_of(container, part)) {
      if (!word.is_string() || word.get_ref<const std::string&>().find('\0') != std::string::npos)
        return cannot(part, "needs texts");
      plan.command.push_back(word);
    }
  }
  if (array_of(container, "command").empty())
    return cannot("spec.containers[0].command", "has no images, so it needs a command");
  if (!array_of(container, "envFrom").empty())
    return cannot("spec.containers[0].envFrom", "does not know it");
  TRY(plan_environment(pod, container, facts, plan));
  for (const Json& mount : array_of(container, "volumeMounts")) {
    TRY_ASSIGN(VolumePlan volume, plan_volume(spec, mount));
    plan.volumes.push_back(std::move(volume));
  }
  plan.ports = container_ports(pod);
  plan.working_folder = string_or(container, "workingDir", "");
  plan.termination_message_path =
      string_or(container, "terminationMessagePath", plan.termination_message_path);
  if (!is_inside_path(plan.termination_message_path))
    return cannot("terminationMessagePath", "needs an absolute path without ..");
  plan.message_falls_back_to_log =
      string_or(container, "terminationMessagePolicy", "") == "FallbackToLogsOnError";
  return plan;
}

}  // namespace lockstep::local
