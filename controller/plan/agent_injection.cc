#include "controller/plan/agent_injection.h"

#include <utility>

#include "controller/plan/names.h"

namespace lockstep::plan {
namespace {

constexpr char kCopyFolder[] = "/copy";

Json* node_container(Json& pod_spec) {
  const auto containers = pod_spec.find("containers");
  if (containers == pod_spec.end() || !containers->is_array()) return nullptr;
  for (Json& container : *containers) {
    if (string_or(container, "name", "") == kNodeContainer) return &container;
  }
  return nullptr;
}

// Returns the resources of `node` that every container has: no devices.
Json plain_resources(const Json& node) {
  Json result = Json::object();
  const Json* resources = find_member(node, "resources");
  if (resources == nullptr) return result;
  for (const char* list : {"requests", "limits"}) {
    const Json* amounts = find_member(*resources, list);
    if (amounts == nullptr) continue;
    for (const char* name : {"cpu", "memory", "ephemeral-storage"}) {
      if (const Json* amount = find_member(*amounts, name)) result[list][name] = *amount;
    }
  }
  return result;
}

// Repeats what PodSecurity `restricted` asks of each container: a pod may meet it through its
// containers alone.
Json security_context(const Json& node) {
  Json result = {{"allowPrivilegeEscalation", false},
                 {"capabilities", {{"drop", Json::array({"ALL"})}}},
                 {"readOnlyRootFilesystem", true}};
  const Json* context = find_member(node, "securityContext");
  if (context == nullptr) return result;
  if (bool_or(*context, "runAsNonRoot", false)) result["runAsNonRoot"] = true;
  if (const Json* profile = find_member(*context, "seccompProfile")) {
    result["seccompProfile"] = *profile;
  }
  return result;
}

Json copier(const std::string& agent_image, const Json& node) {
  Json result = {
      {"name", kAgentCopier},
      {"image", agent_image},
      {"command", Json::array({kAgentPath, "--install", kCopyFolder})},
      {"volumeMounts", Json::array({{{"name", kAgentCopier}, {"mountPath", kCopyFolder}}})},
      {"terminationMessagePolicy", "FallbackToLogsOnError"},
      {"securityContext", security_context(node)}};
  Json resources = plain_resources(node);
  if (!resources.empty()) result["resources"] = std::move(resources);
  return result;
}

Json& list_of(Json& object, const char* key) {
  Json& list = object[key];
  if (!list.is_array()) list = Json::array();
  return list;
}

}  // namespace

void inject_agent(const std::string& agent_image, Json& pod_spec) {
  Json* node = node_container(pod_spec);
  if (agent_image.empty() || node == nullptr) return;
  if (string_or(*node, "image", "") == agent_image) return;
  Json& init_containers = list_of(pod_spec, "initContainers");
  init_containers.insert(init_containers.begin(), copier(agent_image, *node));
  list_of(*node, "volumeMounts")
      .push_back({{"name", kAgentCopier}, {"mountPath", kBundleFolder}, {"readOnly", true}});
  list_of(pod_spec, "volumes").push_back({{"name", kAgentCopier}, {"emptyDir", Json::object()}});
}

}  // namespace lockstep::plan
