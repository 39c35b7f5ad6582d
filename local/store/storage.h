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
  std::string namespace_;  // "" for objects of the cluster
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
  // Of each type: what a watch can still be resumed from.
  size_t history_max = 5'000;
  size_t history_bytes_max = 32u << 20;
  Duration history_age = std::chrono::minutes(5);  // as kube-apiserver compacts etcd
};

// Objects by type, namespace and name, and their latest changes: what etcd is to kube-apiserver.
// One counter gives every write its resourceVersion. Types are always their storage() types. Not
// thread-safe; pure but for memory.
class Storage {
 public:
  explicit Storage(const StorageLimits& limits = {}) : limits_(limits) {}

  // The version of the newest write.
  int64_t version() const { return version_; }

  // Null if there is none.
  ObjectPtr get(const ResourceType& type, const ObjectKey& key) const;

  // Creates or replaces; metadata.resourceVersion is set here. kUnavailable when the limits are
  // reached. A type that keeps its newest objects alone drops the oldest.
  Result<ObjectPtr> put(const ResourceType& type, const ObjectKey& key, Json object);

  // The last state, with the deletion's version; null if there was none.
  ObjectPtr erase(const ResourceType& type, const ObjectKey& key);

  // In the order of their keys; namespace "" means all.
  std::vector<ObjectPtr> list(const ResourceType& type, std::string_view namespace_) const;
  std::vector<ObjectKey> keys(const ResourceType& type, std::string_view namespace_) const;
  bool has_objects(const ResourceType& type, std::string_view namespace_) const;
  // Forgets the type's objects and history: its address is another type's from now on.
  void forget(const ResourceType& type);
  // As it was at an older version, and what follows `after` alone; kNotFound if the history does
  // not reach back.
  Result<std::vector<ObjectPtr>> list_at(const ResourceType& type, std::string_view namespace_,
                                         int64_t version, const ObjectKey& after = {}) const;

  // The first change after `version`; null if there is none yet. Valid until the next write.
  const Change* next_change(const ResourceType& type, int64_t version) const;
  // False where changes after `version` are forgotten already.
  bool remembers(const ResourceType& type, int64_t version) const;

  // Forgets the changes up to `version`; true if there were any.
  bool compact(int64_t version);

  // Who names this UID in its ownerReferences.
  using Place = std::pair<const ResourceType*, ObjectKey>;
  std::vector<Place> dependents(const std::string& uid) const;
  bool has_uid(const std::string& uid) const { return uids_.contains(uid); }
  // Where the object with this UID is; type null if there is none.
  Place find_uid(const std::string& uid) const;

 private:
  struct Stored {
    ObjectPtr object;
    int64_t version = 0;
    size_t bytes = 0;
  };
  struct Table {
    std::map<ObjectKey, Stored> objects;
    std::map<int64_t, ObjectKey> by_version;  // of types that keep their newest objects alone
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
  std::map<std::string, Place> uids_;
  std::map<std::string, std::set<Place>> dependents_;  // owner's UID -> who names it
};

// metadata.ownerReferences; an empty array where there are none.
const Json& owner_references(const Json& object);
const Json& metadata_of(const Json& object);
std::string uid_of(const Json& object);
int64_t version_of(const Json& object);

}  // namespace lockstep::local
