#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/result.h"
#include "local/store/resources.h"

namespace lockstep::local {

struct ObjectKey {
  std::string namespace_;  // "" for cluster-scoped objects
  std::string name;

  auto operator<=>(const ObjectKey&) const = default;
};

using ObjectPtr = std::shared_ptr<const Json>;

enum class ChangeType { kAdded, kModified, kDeleted };

struct Change {
  int64_t version = 0;
  ChangeType type = ChangeType::kAdded;
  ObjectKey key;
  ObjectPtr object;    // kDeleted: the last state, with the version of the deletion
  ObjectPtr previous;  // null for kAdded
  size_t bytes = 0;
};

struct StorageLimits {
  size_t objects_max = 50'000;
  size_t bytes_max = 256u << 20;  // of all objects, as JSON text
  // For each type: the history from which a watch can be resumed.
  size_t history_max = 5'000;
  size_t history_bytes_max = 32u << 20;
  Duration history_age = std::chrono::minutes(5);  // like compaction of etcd by kube-apiserver
};

// Objects by type, namespace and name, and their latest changes: what etcd is to kube-apiserver.
// One counter gives every write its resourceVersion. Types must be storage() types. Not
// thread-safe; has no side effects outside its memory.
class Storage {
 public:
  explicit Storage(const StorageLimits& limits = {}) : limits_(limits) {}

  // Returns the version of the newest write.
  int64_t version() const { return version_; }

  // Returns null if there is no such object.
  ObjectPtr get(const ResourceType& type, const ObjectKey& key) const;

  // Creates or replaces an object, and sets its metadata.resourceVersion. kUnavailable if a limit
  // is reached. A type that keeps only its newest objects drops the oldest one.
  Result<ObjectPtr> put(const ResourceType& type, const ObjectKey& key, Json object);

  // Returns the last state, with the deletion's version; null if there was no such object.
  ObjectPtr erase(const ResourceType& type, const ObjectKey& key);

  // Lists objects in the order of their keys; namespace "" means all.
  std::vector<ObjectPtr> list(const ResourceType& type, std::string_view namespace_) const;
  std::vector<ObjectKey> keys(const ResourceType& type, std::string_view namespace_) const;
  bool has_objects(const ResourceType& type, std::string_view namespace_) const;
  // Forgets the type's objects and history, because its address now belongs to another type.
  void forget(const ResourceType& type);
  // Lists objects as they were at an older version, only those with keys after `after`. kNotFound
  // if the history does not reach back far enough.
  Result<std::vector<ObjectPtr>> list_at(const ResourceType& type, std::string_view namespace_,
                                         int64_t version, const ObjectKey& after = {}) const;

  // Returns the first change after `version`; null if there is none yet. Valid until the next
  // write.
  const Change* next_change(const ResourceType& type, int64_t version) const;
  // Returns false if changes after `version` are already forgotten.
  bool remembers(const ResourceType& type, int64_t version) const;

  // Forgets changes up to `version`. Returns true if there were any.
  bool compact(int64_t version);

  // A stored object. dependents() returns those with this UID in their ownerReferences.
  using ObjectRef = std::pair<const ResourceType*, ObjectKey>;
  std::vector<ObjectRef> dependents(const std::string& uid) const;
  bool has_uid(const std::string& uid) const { return uids_.contains(uid); }
  // Returns the object with this UID; its type is null if there is none.
  ObjectRef find_uid(const std::string& uid) const;

 private:
  struct Stored {
    ObjectPtr object;
    int64_t version = 0;
    size_t bytes = 0;
  };
  struct Table {
    std::map<ObjectKey, Stored> objects;
    std::map<int64_t, ObjectKey> by_version;  // for types that keep only their newest objects
    std::deque<Change> history;
    size_t history_bytes = 0;
    int64_t forgotten = 0;  // version of the newest change that is no longer in the history
  };

  const Table* table(const ResourceType& type) const;
  void remember(Table& table, Change change);
  static void forget_oldest(Table& table);
  void index(const ResourceType& type, const ObjectKey& key, const Json& object, bool add);
  void drop_oldest(const ResourceType& type, Table& table);

  StorageLimits limits_;
  int64_t version_ = 0;
  size_t objects_ = 0;
  size_t bytes_ = 0;
  std::map<const ResourceType*, Table> tables_;
  std::map<std::string, ObjectRef> uids_;
  std::map<std::string, std::set<ObjectRef>> dependents_;  // owner's UID -> its dependents
};

// Returns metadata.ownerReferences; an empty array if there are none.
const Json& owner_references(const Json& object);
const Json& metadata_of(const Json& object);
std::string uid_of(const Json& object);
int64_t version_of(const Json& object);

}  // namespace lockstep::local
