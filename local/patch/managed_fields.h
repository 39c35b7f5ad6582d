#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// One entry of metadata.managedFields, as stored. `fields` refers to its field set (field_set.h).
struct ManagedEntry {
  Json json;

  const Json& fields() const { return json["fieldsV1"]; }
  Json& fields() { return json["fieldsV1"]; }
  // Returns "" if the member is missing.
  const std::string& text(const char* member) const;
  bool is_applied() const { return text("operation") == "Apply"; }
};

// Identifies the manager of an entry. An object has one entry per identity. An applier keeps its
// identity when it applies another version.
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
  // With more update entries, the oldest ones of a version are folded into one of ancient-changes.
  static constexpr size_t kUpdatesMax = 10;

  Managers() = default;
  // Makes managers from entries that this server wrote.
  static Managers stored(Json entries);
  // Checks and normalizes entries from a client. kInvalid if they are not well-formed.
  static Result<Managers> read(const Json& entries);

  bool empty() const { return entries_.empty(); }
  std::vector<ManagedEntry>& entries() { return entries_; }
  ManagedEntry* find(const ManagerIdentity& identity);
  // Returns the entry, adding it if needed, after setting its version and time. Valid until the
  // next call.
  ManagedEntry& touch(const ManagerIdentity& identity, WallTime now);

  // Drops entries without fields, folds the oldest updates, sorts, and returns the entries. The
  // list is empty if nobody owns a field.
  Json take();

 private:
  void fold_updates();

  std::vector<ManagedEntry> entries_;
};

}  // namespace lockstep::local
