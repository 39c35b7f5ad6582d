#include "local/store/deletion.h"

#include <algorithm>

#include "local/store/crd.h"
#include "local/store/object_rules.h"

namespace lockstep::local {
namespace {

// A hundred years. Adding more to the current time could overflow its nanoseconds.
constexpr int64_t kGraceShownMaxSeconds = int64_t{100} * 366 * 24 * 3600;

constexpr char kForeground[] = "foregroundDeletion";
constexpr int64_t kDefaultGraceSeconds = 30;

bool has_finalizers(const Json& object) {
  const Json* finalizers = find_member(metadata_of(object), "finalizers");
  return finalizers != nullptr && finalizers->is_array() && !finalizers->empty();
}

bool is_being_deleted(const Json& object) {
  return metadata_of(object).contains("deletionTimestamp");
}

bool waits_for_dependents(const Json& object) {
  const Json* finalizers = find_member(metadata_of(object), "finalizers");
  return finalizers != nullptr && finalizers->is_array() &&
         std::find(finalizers->begin(), finalizers->end(), kForeground) != finalizers->end();
}

// Only a pod that runs on a node gets a grace period.
int64_t grace_of(const ResourceType& type, const Json& object, const DeleteOptions& options) {
  if (!is_pod(type)) return 0;
  static const Json kNone = Json::object();
  const Json* spec = find_member(object, "spec");
  const Json* status = find_member(object, "status");
  spec = spec == nullptr ? &kNone : spec;
  std::string phase = string_or(status == nullptr ? kNone : *status, "phase", "");
  if (string_or(*spec, "nodeName", "").empty() || phase == "Succeeded" || phase == "Failed")
    return 0;
  if (options.grace_period_seconds) return *options.grace_period_seconds;
  return std::max<int64_t>(0, int_or(*spec, "terminationGracePeriodSeconds", kDefaultGraceSeconds));
}

bool is_container(const ResourceType& type) {
  return is_namespace(type) || is_crd(type);
}

// Returns the namespace whose objects count as content; "" for all namespaces.
std::string held_namespace(const ResourceType& type, const ObjectKey& key) {
  return is_namespace(type) ? key.name : "";
}

std::optional<ApiResponse> check_preconditions(const ResourceType& type, const Json& object,
                                               const DeleteOptions& options) {
  std::string name = string_or(metadata_of(object), "name", "");
  std::string uid = uid_of(object);
  if (!options.uid.empty() && options.uid != uid)
    return write_conflict(type, name,
                          "Precondition failed: UID in precondition: " + options.uid +
                              ", UID in object meta: " + uid);
  std::string version = string_or(metadata_of(object), "resourceVersion", "");
  if (!options.resource_version.empty() && options.resource_version != version)
    return write_conflict(
        type, name,
        "Precondition failed: ResourceVersion in precondition: " + options.resource_version +
            ", ResourceVersion in object meta: " + version);
  return std::nullopt;
}

}  // namespace

ApiResponse Deletion::remove(const ResourceType& type, const ObjectKey& key,
                             const DeleteOptions& options) {
  ObjectPtr before = storage_.get(type, key);
  if (before == nullptr) return object_not_found(type, key.name);
  if (auto error = check_preconditions(type, *before, options)) return *error;
  if (is_namespace(type) && (key.name == "default" || key.name.starts_with("kube-")))
    return forbidden(type, key.name, "this namespace may not be deleted");
  if (options.dry_run) return {200, *before};
  begin(type, key, options);
  ObjectPtr marked = storage_.get(type, key);
  drain();
  if (marked != nullptr && is_being_deleted(*marked) && waits_for_dependents(*marked))
    return {200, *marked};
  ObjectPtr after = storage_.get(type, key);
  if (after != nullptr) return {200, *after};
  if (is_pod(type)) return {200, *before};
  return success(type, key.name, uid_of(*before));
}

bool Deletion::is_over(const ResourceType& type, const Json& object) {
  return is_being_deleted(object) && !has_finalizers(object) && !is_container(type) &&
         int_or(metadata_of(object), "deletionGracePeriodSeconds", 0) == 0;
}

void Deletion::finish(const ResourceType& type, const ObjectKey& key) {
  to_erase_.push_back({&type, key});
  drain();
}

void Deletion::reconcile_after_write(const ResourceType& type, const ObjectKey& key) {
  ObjectPtr object = storage_.get(type, key);
  if (object == nullptr) return;
  if (is_being_deleted(*object)) {
    if (is_container(type))
      finish_container(type, key);
    else if (is_over(type, *object))
      to_erase_.push_back({&type, key});
  } else if (const Json& owners = owner_references(*object); !owners.empty()) {
    bool owned = std::any_of(owners.begin(), owners.end(), [&](const Json& owner) {
      return storage_.has_uid(string_or(owner, "uid", ""));
    });
    if (!owned) to_begin_.push_back({&type, key});
  }
  drain();
}

void Deletion::begin(const ResourceType& type, const ObjectKey& key, const DeleteOptions& options) {
  ObjectPtr object = storage_.get(type, key);
  if (object == nullptr) return;
  std::string uid = uid_of(*object);
  if (is_container(type)) return begin_container(type, key, *object);
  if (options.propagation == "Orphan") orphan_dependents(uid);
  std::vector<Storage::ObjectRef> dependents = storage_.dependents(uid);
  bool foreground = options.propagation == "Foreground";
  int64_t grace = grace_of(type, *object, options);
  if (!foreground && grace == 0 && !has_finalizers(*object)) {
    to_erase_.push_back({&type, key});
    return;
  }
  mark(type, key, *object, grace, foreground);
  if (!foreground) return;
  for (const Storage::ObjectRef& dependent : dependents) {
    if (has_other_owner(dependent, uid))
      release_dependent(dependent, uid);
    else
      to_begin_.push_back(dependent);
  }
  to_finish_foreground_.push_back({&type, key});
}

void Deletion::mark(const ResourceType& type, const ObjectKey& key, const Json& object,
                    int64_t grace, bool foreground) {
  Json updated = object;
  Json& metadata = updated["metadata"];
  bool first = !is_being_deleted(object);
  if (first || grace < int_or(metadata, "deletionGracePeriodSeconds", 0)) {
    const int64_t shown = std::clamp<int64_t>(grace, 0, kGraceShownMaxSeconds);
    metadata["deletionTimestamp"] = rfc3339(now_ + std::chrono::seconds(shown));
    metadata["deletionGracePeriodSeconds"] = grace;
  }
  if (first && type.has_generation) metadata["generation"] = int_or(metadata, "generation", 0) + 1;
  if (is_namespace(type)) {
    if (!updated["status"].is_object()) updated["status"] = Json::object();
    updated["status"]["phase"] = "Terminating";
  }
  if (foreground && !waits_for_dependents(object)) metadata["finalizers"].push_back(kForeground);
  // This only adds marks. If there is no room for them, the object stays as it was.
  if (updated != object) (void)storage_.put(type, key, std::move(updated)).ok();
}

std::vector<const ResourceType*> Deletion::held_types(const ResourceType& type,
                                                      const ObjectKey& key) const {
  std::vector<const ResourceType*> held;
  if (is_crd(type)) {
    if (const ResourceType* custom = types_.storage_of(key.name)) held.push_back(custom);
    return held;
  }
  for (const ResourceType* each : types_.types()) {
    if (each->namespaced && each->stored_as == nullptr) held.push_back(each);
  }
  return held;
}

void Deletion::begin_container(const ResourceType& type, const ObjectKey& key, const Json& object) {
  mark(type, key, object, 0, false);
  std::string namespace_ = held_namespace(type, key);
  for (const ResourceType* held : held_types(type, key)) {
    for (const ObjectKey& object_key : storage_.keys(*held, namespace_))
      to_begin_.push_back({held, object_key});
  }
  finish_container(type, key);
}

void Deletion::finish_container(const ResourceType& type, const ObjectKey& key) {
  ObjectPtr object = storage_.get(type, key);
  if (object == nullptr || !is_being_deleted(*object)) return;
  std::string namespace_ = held_namespace(type, key);
  for (const ResourceType* held : held_types(type, key)) {
    if (storage_.has_objects(*held, namespace_)) return;
  }
  Json updated = *object;
  Json kept = Json::array();
  if (has_finalizers(*object)) {
    for (const Json& finalizer : updated["metadata"]["finalizers"])
      if (finalizer != kCrdFinalizer) kept.push_back(finalizer);
  }
  if (kept.empty()) return to_erase_.push_back({&type, key});
  if (kept == updated["metadata"]["finalizers"]) return;
  updated["metadata"]["finalizers"] = std::move(kept);
  (void)storage_.put(type, key, std::move(updated)).ok();  // the object shrinks, so there is room
}

void Deletion::finish_containers_of(const Storage::ObjectRef& gone) {
  const auto& [type, key] = gone;
  if (type->namespaced)
    finish_container(*types_.find("", "v1", "namespaces"), {"", key.namespace_});
  if (type->custom)
    finish_container(*types_.find("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
                     {"", type->qualified_plural()});
}

void Deletion::orphan_dependents(const std::string& uid) {
  for (const Storage::ObjectRef& ref : storage_.dependents(uid)) release_dependent(ref, uid);
}

void Deletion::drain() {
  while (!to_erase_.empty() || !to_begin_.empty() || !to_finish_foreground_.empty()) {
    std::deque<Storage::ObjectRef>& queue = !to_erase_.empty()   ? to_erase_
                                            : !to_begin_.empty() ? to_begin_
                                                                 : to_finish_foreground_;
    Storage::ObjectRef ref = queue.front();
    queue.pop_front();
    if (&queue == &to_erase_)
      erase(ref);
    else if (&queue == &to_begin_)
      begin(*ref.first, ref.second, {});
    else
      finish_foreground(ref);
  }
}

void Deletion::erase(const Storage::ObjectRef& ref) {
  ObjectPtr gone = storage_.erase(*ref.first, ref.second);
  if (gone == nullptr) return;
  std::string uid = uid_of(*gone);
  for (const Storage::ObjectRef& dependent : storage_.dependents(uid)) {
    if (has_other_owner(dependent, uid))
      release_dependent(dependent, uid);
    else
      to_begin_.push_back(dependent);
  }
  release_owners(*gone);
  finish_containers_of(ref);
  if (is_crd(*ref.first)) types_.remove(ref.second.name);
}

bool Deletion::has_other_owner(const Storage::ObjectRef& ref, const std::string& owner_uid) const {
  ObjectPtr object = storage_.get(*ref.first, ref.second);
  if (object == nullptr) return false;
  const Json& owners = owner_references(*object);
  return std::any_of(owners.begin(), owners.end(), [&](const Json& owner) {
    std::string uid = string_or(owner, "uid", "");
    return uid != owner_uid && storage_.has_uid(uid);
  });
}

void Deletion::release_dependent(const Storage::ObjectRef& ref, const std::string& owner_uid) {
  ObjectPtr object = storage_.get(*ref.first, ref.second);
  if (object == nullptr) return;
  Json updated = *object;
  Json kept = Json::array();
  for (const Json& owner : owner_references(*object)) {
    if (string_or(owner, "uid", "") != owner_uid) kept.push_back(owner);
  }
  updated["metadata"]["ownerReferences"] = std::move(kept);
  drop_empty(updated["metadata"]);
  // The object shrinks, so there is room.
  (void)storage_.put(*ref.first, ref.second, std::move(updated)).ok();
}

void Deletion::release_owners(const Json& gone) {
  for (const Json& reference : owner_references(gone)) {
    Storage::ObjectRef owner = storage_.find_uid(string_or(reference, "uid", ""));
    if (owner.first != nullptr) finish_foreground(owner);
  }
}

void Deletion::finish_foreground(const Storage::ObjectRef& owner) {
  ObjectPtr object = storage_.get(*owner.first, owner.second);
  if (object == nullptr || !is_being_deleted(*object) || !waits_for_dependents(*object)) return;
  std::string uid = uid_of(*object);
  for (const Storage::ObjectRef& ref : storage_.dependents(uid)) {
    ObjectPtr dependent = storage_.get(*ref.first, ref.second);
    for (const Json& reference : owner_references(*dependent)) {
      if (string_or(reference, "uid", "") == uid && bool_or(reference, "blockOwnerDeletion", false))
        return;
    }
  }
  Json updated = *object;
  Json& finalizers = updated["metadata"]["finalizers"];
  finalizers.erase(std::find(finalizers.begin(), finalizers.end(), kForeground));
  bool last = finalizers.empty();
  drop_empty(updated["metadata"]);
  (void)storage_.put(*owner.first, owner.second, std::move(updated)).ok();
  if (last && int_or(metadata_of(*object), "deletionGracePeriodSeconds", 0) == 0)
    to_erase_.push_back(owner);
}

}  // namespace lockstep::local
