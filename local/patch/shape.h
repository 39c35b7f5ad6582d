#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"
#include "local/schema/schema.h"

namespace lockstep::local {

// Describes a value to merges by field: its schema, if any, and whether it is the root of an
// object, whose metadata no schema describes. Without a schema, objects merge by member and lists
// are replaced. The schema must outlive the Shape.
class Shape {
 public:
  static Shape of_object(const SchemaNode& schema) { return Shape(&schema, true); }

  Shape member(const std::string& name) const;
  Shape item() const;
  // True if the schema names the member, so that it is not a map entry.
  bool names(const std::string& name) const;
  // False if the schema does not allow the member.
  bool knows(const std::string& name) const;
  // Returns the type that the schema requires, in a server's wording, if `value` has another one;
  // else "".
  std::string mismatch(const Json& value) const;
  // True for fields that no manager owns.
  bool is_server_owned(const std::string& name) const;

  // True for objects and lists whose parts are owned and merged one by one. Any other value is one
  // field.
  bool is_granular(const Json& value) const;

  // Returns the key of an element of a granular list: `k:{"name":"a"}` or `v:"a"`. kInvalid: a key
  // is missing, or the element has the wrong type for the list.
  Result<std::string> element_key(const Json& element) const;

 private:
  Shape(const SchemaNode* schema, bool root, bool metadata = false)
      : schema_(schema), is_root_(root), is_metadata_(metadata) {}

  const SchemaNode* schema_ = nullptr;
  bool is_root_ = false;
  bool is_metadata_ = false;
};

// The elements of a granular list by key, in list order. Only the first of two equal elements
// counts. nullopt if an element has no key: then the list counts as one field.
struct ElementIndex {
  std::vector<std::pair<std::string, const Json*>> order;
  std::unordered_map<std::string, const Json*> by_key;

  static std::optional<ElementIndex> of(const Shape& list, const Json& elements);
  const Json* find(const std::string& key) const;
};

}  // namespace lockstep::local
