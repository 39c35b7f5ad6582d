#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// One entry of metadata.managedFields, as it is stored; `fields` refers to its set (field_set.h).
struct ManagedEntry {
  Json json;

  const Json& fields() const { return json["fieldsV1"]; }
  Json& fields() { return json["fieldsV1"]; }
  // "" where there is none.
  const std::string& text(const char* member) const;
  bool is_applied() const { return text("operation") == "Apply"; }
};

// Who an entry is of. Two entries of one identity become one; an applier is the same whatever
// version it applies.
struct ManagerIdentity {
  std::string manager;
  bool applied = false;
  std::string api_version;
  std::string subresource;

  bool matches(const ManagedEntry& entry) const;
};

// The managers of one object.
// Source: k8s.io/apimachinery, pkg/util/managedfields.
class Managers {
 public:
  // Above these the oldest entries of updates become one, of a manager called ancient-changes.
  static constexpr size_t kUpdatesMax = 10;

  Managers() = default;
  // Of entries that this server has written.
  static Managers stored(Json entries);
  // Of entries from outside, made as this server writes them. kInvalid: they are not well-formed.
  static Result<Managers> read(const Json& entries);

  bool empty() const { return entries_.empty(); }
  std::vector<ManagedEntry>& entries() { return entries_; }
  ManagedEntry* find(const ManagerIdentity& identity);
  // The entry, made if there is none, with the time of a change. Valid until the next call.
  ManagedEntry& touch(const ManagerIdentity& identity, WallTime now);

  // Drops entries without fields, folds the oldest updates, and sorts. An empty list where nobody
  // has a field.
  Json take();

 private:
  void fold_updates();

  std::vector<ManagedEntry> entries_;
};

}  // namespace lockstep::local
