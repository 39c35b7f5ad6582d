#include "cli/local/store/discovery.h"

#include <string>

#include "cli/local/store/resources.h"

namespace lockstep::local {
namespace {

Json group_document(const ResourceType& type) {
  Json version = {{"groupVersion", type.api_version()}, {"version", type.version}};
  return {{"kind", "APIGroup"},
          {"apiVersion", "v1"},
          {"name", type.group},
          {"versions", {version}},
          {"preferredVersion", version}};
}

Json resource_entry(const ResourceType& type) {
  Json entry = {{"name", type.plural},
                {"singularName", type.singular},
                {"namespaced", type.namespaced},
                {"kind", type.kind},
                {"verbs", {"create", "delete", "get", "list", "patch", "update", "watch"}}};
  if (!type.short_name.empty()) entry["shortNames"] = {type.short_name};
  return entry;
}

std::optional<Json> resource_list(std::string_view group_version) {
  Json resources = Json::array();
  for (const ResourceType& type : resource_types()) {
    if (type.api_version() != group_version) continue;
    resources.push_back(resource_entry(type));
    if (!type.has_status) continue;
    resources.push_back({{"name", std::string(type.plural) + "/status"},
                         {"singularName", ""},
                         {"namespaced", type.namespaced},
                         {"kind", type.kind},
                         {"verbs", {"get", "patch", "update"}}});
  }
  if (resources.empty()) return std::nullopt;
  return Json{{"kind", "APIResourceList"},
              {"apiVersion", "v1"},
              {"groupVersion", group_version},
              {"resources", std::move(resources)}};
}

Json group_list() {
  Json groups = Json::array();
  for (const ResourceType& type : resource_types()) {
    if (!type.group.empty()) groups.push_back(group_document(type));
  }
  return {{"kind", "APIGroupList"}, {"apiVersion", "v1"}, {"groups", std::move(groups)}};
}

}  // namespace

std::optional<Json> discovery_document(std::string_view path) {
  // The version whose behaviour is followed where servers differ.
  if (path == "/version")
    return Json{{"major", "1"}, {"minor", "20"}, {"gitVersion", "v1.20.2-lockstep"}};
  if (path == "/api") return Json{{"kind", "APIVersions"}, {"versions", {"v1"}}};
  if (path == "/apis") return group_list();
  if (path.starts_with("/api/")) return resource_list(path.substr(5));
  if (!path.starts_with("/apis/")) return std::nullopt;
  std::string_view rest = path.substr(6);
  if (rest.find('/') != std::string_view::npos) return resource_list(rest);
  for (const ResourceType& type : resource_types()) {
    if (!rest.empty() && type.group == rest) return group_document(type);
  }
  return std::nullopt;
}

}  // namespace lockstep::local
