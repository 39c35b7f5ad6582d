#include "local/store/discovery.h"

#include <string>

#include "local/store/access_review.h"

namespace lockstep::local {
namespace {

// The API group of evictions. Older kubectls check that it exists before they evict pods. It lists
// disruption budgets because clients treat a version without types as broken, but serves no
// operation on them.
constexpr char kPolicyGroup[] = "policy";

bool is_policy_version(std::string_view group_version) {
  return group_version == "policy/v1" || group_version == "policy/v1beta1";
}

bool is_review_group(std::string_view group) {
  return group == kAccessGroup || group == kSubjectGroup;
}

Json group_document(const TypeRegistry& types, std::string_view group) {
  Json versions = Json::array();
  if (group == kPolicyGroup) {
    for (const char* version : {"v1", "v1beta1"})
      versions.push_back(
          {{"groupVersion", std::string("policy/") + version}, {"version", version}});
  }
  if (is_review_group(group))
    versions.push_back({{"groupVersion", std::string(group) + "/v1"}, {"version", "v1"}});
  for (const ResourceType* type : types.types()) {
    if (type->group != group) continue;
    Json version = {{"groupVersion", type->api_version()}, {"version", type->version}};
    if (versions.empty() || versions.back() != version) versions.push_back(std::move(version));
  }
  Json preferred = versions[0];
  return {{"kind", "APIGroup"},
          {"apiVersion", "v1"},
          {"name", group},
          {"versions", std::move(versions)},
          {"preferredVersion", std::move(preferred)}};
}

Json resource_entry(const ResourceType& type) {
  Json entry = {
      {"name", type.plural},
      {"singularName", type.singular},
      {"namespaced", type.namespaced},
      {"kind", type.kind},
      {"verbs",
       {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}}};
  if (!type.short_names.empty()) entry["shortNames"] = type.short_names;
  if (!type.categories.empty()) entry["categories"] = type.categories;
  return entry;
}

Json subresource_entry(const ResourceType& type, const std::string& name, const Json& verbs) {
  return {{"name", type.plural + "/" + name},
          {"singularName", ""},
          {"namespaced", type.namespaced},
          {"kind", type.kind},
          {"verbs", verbs}};
}

void add_subresources(const ResourceType& type, Json& resources) {
  if (is_pod(type)) {
    resources.push_back(subresource_entry(type, "binding", Json::array({"create"})));
    Json eviction = subresource_entry(type, "eviction", Json::array({"create"}));
    eviction.update({{"kind", "Eviction"}, {"group", "policy"}, {"version", "v1"}});
    resources.push_back(std::move(eviction));
    resources.push_back(subresource_entry(type, "log", Json::array({"get"})));
  }
  if (type.has_status)
    resources.push_back(subresource_entry(type, "status", {"get", "patch", "update"}));
  if (type.scale) {
    Json scale = subresource_entry(type, "scale", {"get", "patch", "update"});
    scale.update({{"kind", "Scale"}, {"group", "autoscaling"}, {"version", "v1"}});
    resources.push_back(std::move(scale));
  }
}

std::optional<Json> resource_list(const TypeRegistry& types, std::string_view group_version) {
  Json resources = Json::array();
  for (const ResourceType* type : types.types()) {
    if (type->api_version() != group_version) continue;
    resources.push_back(resource_entry(*type));
    add_subresources(*type, resources);
  }
  if (is_policy_version(group_version))
    resources.push_back({{"name", "poddisruptionbudgets"},
                         {"singularName", ""},
                         {"namespaced", true},
                         {"kind", "PodDisruptionBudget"},
                         {"verbs", Json::array()}});
  if (group_version.ends_with("/v1")) {
    for (Json& review : review_resources(group_version.substr(0, group_version.size() - 3)))
      resources.push_back(std::move(review));
  }
  if (resources.empty()) return std::nullopt;
  return Json{{"kind", "APIResourceList"},
              {"apiVersion", "v1"},
              {"groupVersion", group_version},
              {"resources", std::move(resources)}};
}

Json group_list(const TypeRegistry& types) {
  Json groups = Json::array();
  for (const ResourceType* type : types.types()) {
    if (type->group.empty()) continue;
    if (groups.empty() || groups.back()["name"] != type->group)
      groups.push_back(group_document(types, type->group));
  }
  for (const char* group : {kPolicyGroup, kAccessGroup, kSubjectGroup})
    groups.push_back(group_document(types, group));
  return {{"kind", "APIGroupList"}, {"apiVersion", "v1"}, {"groups", std::move(groups)}};
}

}  // namespace

std::optional<Json> discovery_document(const TypeRegistry& types, std::string_view path) {
  // Where servers differ, we follow the behaviour of this version.
  if (path == "/version")
    return Json{{"major", "1"}, {"minor", "20"}, {"gitVersion", "v1.20.2-lockstep"}};
  if (path == "/api") return Json{{"kind", "APIVersions"}, {"versions", {"v1"}}};
  if (path == "/apis") return group_list(types);
  if (path.starts_with("/api/")) return resource_list(types, path.substr(5));
  if (!path.starts_with("/apis/")) return std::nullopt;
  std::string_view rest = path.substr(6);
  if (rest.find('/') != std::string_view::npos) return resource_list(types, rest);
  if (rest == kPolicyGroup || is_review_group(rest)) return group_document(types, rest);
  for (const ResourceType* type : types.types()) {
    if (!rest.empty() && type->group == rest) return group_document(types, rest);
  }
  return std::nullopt;
}

}  // namespace lockstep::local
