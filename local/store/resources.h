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

// Where a custom type keeps its replicas: dotted paths that begin with a dot.
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
  std::string list_kind = {};  // "": the kind and "List"
  std::vector<std::string> short_names = {};
  std::vector<std::string> categories = {};
  bool namespaced = true;
  bool has_status = false;            // spec and status are written apart
  bool has_generation = false;        // metadata.generation counts changes of the spec
  bool update_needs_version = false;  // a PUT without resourceVersion is refused
  size_t newest_kept = 0;             // older objects are dropped; 0: none are
  // The type under which the objects are stored, where several serve the same ones (events; the
  // versions of a custom type).
  const ResourceType* stored_as = nullptr;

  // Of custom types.
  bool custom = false;
  std::optional<ScalePaths> scale = {};
  std::vector<TableColumn> columns = {};
  std::shared_ptr<const SchemaNode> schema = {};

  bool served = true;  // false: a version that is stored alone, or a type that is gone
  uint64_t epoch = 0;  // changes when the place is given to another type

  const ResourceType& storage() const { return stored_as == nullptr ? *this : *stored_as; }
  std::string api_version() const;
  // "pods", "trainingjobs.lockstep.dev": as messages of errors name it.
  std::string qualified_plural() const;
  std::string list_name() const { return list_kind.empty() ? kind + "List" : list_kind; }
};

// The types that a server has: the built-in ones, and those that CustomResourceDefinitions add and
// take away. A type's address is its identity and stays valid as long as the registry, also after
// the type is gone (then it is not `served`, and its place may be given to a later one, with
// another epoch). Not thread-safe.
class TypeRegistry {
 public:
  TypeRegistry();
  TypeRegistry(const TypeRegistry&) = delete;
  TypeRegistry& operator=(const TypeRegistry&) = delete;

  // nullptr if there is no such type now.
  const ResourceType* find(std::string_view group, std::string_view version,
                           std::string_view plural) const;
  // All that are served: by group, the preferred version first.
  const std::vector<const ResourceType*>& types() const { return served_; }

  // Adds a custom type, or replaces its definition; `name` is that of its CRD. All versions hold
  // the same objects, stored under the first one that it ever had. `reused` hears of the storage
  // type of a new definition before it has any objects: what was stored under that address is old.
  void define(const std::string& name, std::vector<ResourceType> versions,
              const std::function<void(const ResourceType&)>& reused);
  void remove(const std::string& name);
  // The storage type of a CRD; nullptr if it is not defined.
  const ResourceType* storage_of(const std::string& name) const;
  // Grows whenever a type comes, changes or goes.
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
