#include "cli/local/store/resources.h"

#include "common/api/training_job.h"

namespace lockstep::local {
namespace {

constexpr size_t kEventsKept = 2000;

constexpr size_t kCoreEventsIndex = 3;
extern const ResourceType kTypes[8];

const ResourceType kTypes[8] = {
    ResourceType{.group = kApiGroup,
                 .version = "v1alpha1",
                 .plural = "trainingjobs",
                 .kind = kKind,
                 .singular = "trainingjob",
                 .short_name = "tj",
                 .has_status = true,
                 .has_generation = true,
                 .update_needs_version = true},
    ResourceType{.group = "",
                 .version = "v1",
                 .plural = "pods",
                 .kind = "Pod",
                 .singular = "pod",
                 .short_name = "po",
                 .has_status = true},
    ResourceType{.group = "",
                 .version = "v1",
                 .plural = "secrets",
                 .kind = "Secret",
                 .singular = "secret",
                 .short_name = ""},
    ResourceType{.group = "",
                 .version = "v1",
                 .plural = "events",
                 .kind = "Event",
                 .singular = "event",
                 .short_name = "ev",
                 .newest_kept = kEventsKept},
    ResourceType{.group = "events.k8s.io",
                 .version = "v1",
                 .plural = "events",
                 .kind = "Event",
                 .singular = "event",
                 .short_name = "ev",
                 .stored_as = &kTypes[kCoreEventsIndex]},
    ResourceType{.group = "coordination.k8s.io",
                 .version = "v1",
                 .plural = "leases",
                 .kind = "Lease",
                 .singular = "lease",
                 .short_name = "",
                 .update_needs_version = true},
    ResourceType{.group = "",
                 .version = "v1",
                 .plural = "namespaces",
                 .kind = "Namespace",
                 .singular = "namespace",
                 .short_name = "ns",
                 .namespaced = false,
                 .has_status = true},
    ResourceType{.group = "",
                 .version = "v1",
                 .plural = "nodes",
                 .kind = "Node",
                 .singular = "node",
                 .short_name = "no",
                 .namespaced = false,
                 .has_status = true},
};

}  // namespace

std::string ResourceType::api_version() const {
  return group.empty() ? std::string(version) : std::string(group) + "/" + std::string(version);
}

std::string ResourceType::qualified_plural() const {
  return group.empty() ? std::string(plural) : std::string(plural) + "." + std::string(group);
}

std::span<const ResourceType> resource_types() {
  return kTypes;
}

const ResourceType* find_resource(std::string_view group, std::string_view version,
                                  std::string_view plural) {
  for (const ResourceType& type : kTypes) {
    if (type.group == group && type.version == version && type.plural == plural) return &type;
  }
  return nullptr;
}

bool is_pod(const ResourceType& type) {
  return type.group.empty() && type.plural == "pods";
}

}  // namespace lockstep::local
