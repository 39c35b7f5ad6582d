#include "local/node/field_values.h"

#include <algorithm>

#include "local/node/fields.h"

namespace lockstep::local {
namespace {

std::string map_lines(const Json& map) {
  std::string lines;
  for (const auto& [key, value] : map.items()) {
    if (!value.is_string()) continue;
    lines += key + "=" + dump_json(value) + "\n";
  }
  if (!lines.empty()) lines.pop_back();
  return lines;
}

const ContainerPlan* find_container(const PodPlan& plan, const std::string& name) {
  for (const auto* list : {&plan.init_containers, &plan.containers}) {
    for (const ContainerPlan& container : *list) {
      if (container.name == name) return &container;
    }
  }
  return nullptr;
}

}  // namespace

Result<std::string> field_value(const Json& pod, const PodFacts& facts, const std::string& path) {
  const Json& metadata = object_of(pod, "metadata");
  if (path == "status.podIP" || path == "status.podIPs") return facts.pod_address;
  if (path == "status.hostIP" || path == "status.hostIPs") return facts.host_address;
  if (path == "spec.nodeName") return facts.node_name;
  if (path == "spec.serviceAccountName")
    return string_or(object_of(pod, "spec"), "serviceAccountName", "default");
  for (const char* key : {"name", "namespace", "uid"}) {
    if (path == "metadata." + std::string(key)) return string_or(metadata, key, "");
  }
  for (const char* map : {"labels", "annotations"}) {
    std::string whole = "metadata." + std::string(map);
    if (path == whole) return map_lines(object_of(metadata, map));
    std::string prefix = whole + "['";
    if (path.starts_with(prefix) && path.ends_with("']"))
      return string_or(object_of(metadata, map),
                       path.substr(prefix.size(), path.size() - prefix.size() - 2), "");
  }
  return cannot("fieldRef " + path, "does not support this field");
}

Result<std::string> resource_value(const PodPlan& plan, const PodFacts& facts,
                                   const Json& reference, const ContainerPlan* own) {
  std::string resource = string_or(reference, "resource", "");
  std::string name = string_or(reference, "containerName", "");
  const ContainerPlan* container = name.empty() ? own : find_container(plan, name);
  if (container == nullptr)
    return cannot("resourceFieldRef " + resource,
                  "needs an existing container, found \"" + name + "\"");
  bool is_limit = resource.starts_with("limits.");
  if (!is_limit && !resource.starts_with("requests."))
    return cannot("resourceFieldRef " + resource, "supports only limits and requests");
  std::string kind = resource.substr(resource.find('.') + 1);
  const Resources& asked = is_limit ? container->limits : container->requests;
  int64_t amount = 0;
  if (auto found = asked.find(kind); found != asked.end())
    amount = found->second;
  else if (auto all = facts.allocatable.find(kind); is_limit && all != facts.allocatable.end())
    amount = all->second;
  Result<int64_t> divisor = milli_quantity(string_or(reference, "divisor", "1"));
  if (!divisor.ok() || *divisor < 0)
    return cannot("resourceFieldRef " + resource, "needs a positive divisor");
  int64_t unit = *divisor == 0 ? 1000 : *divisor;
  return std::to_string(amount / unit + (amount % unit > 0 ? 1 : 0));
}

}  // namespace lockstep::local
