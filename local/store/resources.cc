#include "local/store/resources.h"

#include <algorithm>
#include <compare>

namespace lockstep::local {
namespace {

constexpr size_t kEventsKept = 2000;
constexpr char kExtensions[] = "apiextensions.k8s.io";

ResourceType core(std::string plural, std::string kind, std::string singular,
                  std::string short_name) {
  ResourceType type{.group = "",
                    .version = "v1",
                    .plural = std::move(plural),
                    .kind = std::move(kind),
                    .singular = std::move(singular)};
  if (!short_name.empty()) type.short_names = {std::move(short_name)};
  return type;
}

std::vector<ResourceType> core_types() {
  std::vector<ResourceType> types;
  types.push_back(core("configmaps", "ConfigMap", "configmap", "cm"));
  types.push_back(core("events", "Event", "event", "ev"));
  types.back().newest_kept = kEventsKept;
  types.push_back(core("namespaces", "Namespace", "namespace", "ns"));
  types.back().namespaced = false;
  types.back().has_status = true;
  types.push_back(core("nodes", "Node", "node", "no"));
  types.back().namespaced = false;
  types.back().has_status = true;
  types.push_back(core("pods", "Pod", "pod", "po"));
  types.back().has_status = true;
  types.back().categories = {"all"};
  types.push_back(core("secrets", "Secret", "secret", ""));
  types.push_back(core("services", "Service", "service", "svc"));
  types.back().has_status = true;
  types.back().categories = {"all"};
  return types;
}

ResourceType crd_type() {
  return {.group = kExtensions,
          .version = "v1",
          .plural = "customresourcedefinitions",
          .kind = "CustomResourceDefinition",
          .singular = "customresourcedefinition",
          .short_names = {"crd", "crds"},
          .categories = {"api-extensions"},
          .namespaced = false,
          .has_status = true,
          .has_generation = true,
          .update_needs_version = true};
}

ResourceType lease_type() {
  return {.group = "coordination.k8s.io",
          .version = "v1",
          .plural = "leases",
          .kind = "Lease",
          .singular = "lease",
          .update_needs_version = true};
}

ResourceType modern_event_type(const ResourceType* stored_as) {
  return {.group = "events.k8s.io",
          .version = "v1",
          .plural = "events",
          .kind = "Event",
          .singular = "event",
          .short_names = {"ev"},
          .stored_as = stored_as};
}

struct VersionRank {
  int stage = 0;  // 3: v1, 2: v1beta1, 1: v1alpha1, 0: any other name
  int major = 0;
  int minor = 0;

  auto operator<=>(const VersionRank&) const = default;
};

int take_number(std::string_view& text) {
  int number = 0;
  size_t digits = 0;
  while (digits < text.size() && digits < 6 && text[digits] >= '0' && text[digits] <= '9')
    number = number * 10 + (text[digits++] - '0');
  text.remove_prefix(digits);
  return number;
}

// Source: Kubernetes, "Versions in CustomResourceDefinitions: version priority".
VersionRank rank_of(std::string_view version) {
  if (!version.starts_with('v')) return {};
  version.remove_prefix(1);
  VersionRank rank{.stage = 3, .major = take_number(version)};
  if (rank.major == 0) return {};
  if (version.empty()) return rank;
  rank.stage = version.starts_with("beta") ? 2 : version.starts_with("alpha") ? 1 : 0;
  if (rank.stage == 0) return {};
  version.remove_prefix(rank.stage == 2 ? 4 : 5);
  rank.minor = take_number(version);
  return version.empty() && rank.minor > 0 ? rank : VersionRank{};
}

bool comes_before(const ResourceType* a, const ResourceType* b) {
  if (a->group != b->group) return a->group < b->group;
  return rank_of(a->version) > rank_of(b->version);
}

}  // namespace

std::string ResourceType::api_version() const {
  return group.empty() ? version : group + "/" + version;
}

std::string ResourceType::qualified_plural() const {
  return group.empty() ? plural : plural + "." + group;
}

TypeRegistry::TypeRegistry() {
  const ResourceType* events = nullptr;
  for (ResourceType& type : core_types()) {
    places_.push_back(std::move(type));
    if (places_.back().plural == "events") events = &places_.back();
  }
  places_.push_back(crd_type());
  places_.push_back(lease_type());
  places_.push_back(modern_event_type(events));
  refresh();
}

const ResourceType* TypeRegistry::find(std::string_view group, std::string_view version,
                                       std::string_view plural) const {
  std::string key;
  key.append(group).append("/").append(version).append("/").append(plural);
  auto found = by_path_.find(key);
  return found == by_path_.end() ? nullptr : found->second;
}

ResourceType* TypeRegistry::new_place() {
  if (free_.empty()) return &places_.emplace_back();
  ResourceType* place = free_.back();
  free_.pop_back();
  return place;
}

void TypeRegistry::define(const std::string& name, std::vector<ResourceType> versions,
                          const std::function<void(const ResourceType&)>& reused) {
  std::vector<ResourceType*>& places = custom_[name];
  bool is_new = places.empty();
  for (ResourceType* place : places) place->served = false;
  for (ResourceType& version : versions) {
    auto same = std::find_if(places.begin(), places.end(), [&](const ResourceType* place) {
      return place->version == version.version;
    });
    ResourceType* place = same != places.end() ? *same : new_place();
    if (same == places.end()) {
      version.epoch = place->epoch + 1;
      places.push_back(place);
    } else {
      version.epoch = place->epoch;
    }
    *place = std::move(version);
    place->stored_as = place == places.front() ? nullptr : places.front();
  }
  if (is_new && !places.empty()) reused(*places.front());
  refresh();
}

void TypeRegistry::remove(const std::string& name) {
  auto found = custom_.find(name);
  if (found == custom_.end()) return;
  for (ResourceType* place : found->second) {
    place->served = false;
    free_.push_back(place);
  }
  custom_.erase(found);
  refresh();
}

const ResourceType* TypeRegistry::storage_of(const std::string& name) const {
  auto found = custom_.find(name);
  return found == custom_.end() ? nullptr : found->second.front();
}

void TypeRegistry::refresh() {
  ++revision_;
  served_.clear();
  by_path_.clear();
  for (const ResourceType& type : places_) {
    if (!type.served) continue;
    served_.push_back(&type);
    by_path_[type.group + "/" + type.version + "/" + type.plural] = &type;
  }
  std::stable_sort(served_.begin(), served_.end(), comes_before);
}

bool is_core(const ResourceType& type, std::string_view plural) {
  return type.group.empty() && type.plural == plural;
}

bool is_pod(const ResourceType& type) {
  return is_core(type, "pods");
}

bool is_namespace(const ResourceType& type) {
  return is_core(type, "namespaces");
}

bool is_crd(const ResourceType& type) {
  return type.group == kExtensions;
}

}  // namespace lockstep::local
