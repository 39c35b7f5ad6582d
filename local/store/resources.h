#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "local/schema/schema.h"
#include "local/table/table.h"

namespace lockstep::local {

// Fields of a custom type for scale, as dotted paths that begin with a dot.
struct ScalePaths {
  std::string spec_replicas;
  std::string status_replicas;
  std::string label_selector;  // "": none
};

// One kind of object that the embedded server serves, in one version.
struct ResourceType {
  std::string group;    // "" for the core group
  std::string version;  // "v1"
  std::string plural;
  std::string kind;
  std::string singular;
  std::string list_kind = {};  // "": kind + "List"
  std::vector<std::string> short_names = {};
  std::vector<std::string> categories = {};
  bool namespaced = true;
  bool has_status = false;            // spec and status are written separately
  bool has_generation = false;        // metadata.generation counts changes of the spec
  bool update_needs_version = false;  // a PUT without resourceVersion is refused
  size_t newest_kept = 0;             // only this many newest objects are kept; 0: all
  // The type under which the objects are stored, if several types serve the same ones (events, the
  // versions of a custom type).
  const ResourceType* stored_as = nullptr;

  // For custom types only.
  bool custom = false;
  std::optional<ScalePaths> scale = {};
  std::vector<TableColumn> columns = {};
  std::shared_ptr<const SchemaNode> schema = {};

  bool served = true;  // false: a version that is only stored, or a removed type
  uint64_t epoch = 0;  // changes when the address is reused for another type

  const ResourceType& storage() const { return stored_as == nullptr ? *this : *stored_as; }
  std::string api_version() const;
  // Returns the name in error messages: "pods", "trainingjobs.lockstep.dev".
  std::string qualified_plural() const;
  std::string list_name() const { return list_kind.empty() ? kind + "List" : list_kind; }
};

// The types that a server has: the built-in ones, and those that CustomResourceDefinitions add and
// remove. A type's address is its identity and stays valid as long as the registry. A removed type
// is not `served`, and a later type may reuse its address with another epoch. Not thread-safe.
class TypeRegistry {
 public:
  TypeRegistry();
  TypeRegistry(const TypeRegistry&) = delete;
  TypeRegistry& operator=(const TypeRegistry&) = delete;

  // Returns null if there is no such type now.
  const ResourceType* find(std::string_view group, std::string_view version,
                           std::string_view plural) const;
  // Returns all served types by group, the preferred version first.
  const std::vector<const ResourceType*>& types() const { return served_; }

  // Adds a custom type, or replaces its definition; `name` is that of its CRD. All versions hold
  // the same objects, stored under the first version that the type ever had. For a new definition,
  // calls `reused` with its storage type: objects still stored under that address belong to an
  // older type.
  void define(const std::string& name, std::vector<ResourceType> versions,
              const std::function<void(const ResourceType&)>& reused);
  void remove(const std::string& name);
  // Returns the storage type of a CRD; null if it is not defined.
  const ResourceType* storage_of(const std::string& name) const;
  // Grows whenever a type is added, changed or removed.
  uint64_t revision() const { return revision_; }
  size_t custom_count() const { return custom_.size(); }

 private:
  ResourceType* new_place();
  void refresh();

  uint64_t revision_ = 0;
  std::deque<ResourceType> places_;
  std::vector<ResourceType*> free_;
  std::map<std::string, std::vector<ResourceType*>> custom_;  // by CRD; the storage type first
  std::vector<const ResourceType*> served_;
  std::map<std::string, const ResourceType*, std::less<>> by_path_;  // "group/version/plural"
};

bool is_pod(const ResourceType& type);
bool is_namespace(const ResourceType& type);
bool is_crd(const ResourceType& type);
bool is_core(const ResourceType& type, std::string_view plural);

}  // namespace lockstep::local
