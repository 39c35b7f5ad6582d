#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"
#include "local/schema/schema.h"

namespace lockstep::local {

// What a value is to merges by field: its schema, if there is one, and whether it is the root of an
// object, whose metadata no schema describes. Where there is no schema, objects merge by member and
// lists are replaced. The schema outlives it.
class Shape {
 public:
  static Shape of_object(const SchemaNode& schema) { return Shape(&schema, true); }

  Shape member(const std::string& name) const;
  Shape item() const;
  // A member that the schema names, as against an entry of a map.
  bool names(const std::string& name) const;
  // False: the schema has no place for it.
  bool knows(const std::string& name) const;
  // The type that the schema wants where `value` is of another, in the words of a server; else "".
  std::string mismatch(const Json& value) const;
  // What nobody owns.
  bool is_server_owned(const std::string& name) const;

  // Objects and lists whose parts are owned and merged one by one; all else is one field.
  bool is_granular(const Json& value) const;

  // `k:{"name":"a"}` or `v:"a"`; for elements of a granular list. kInvalid: a key is missing, the
  // element is not of the sort that the list holds.
  Result<std::string> element_key(const Json& element) const;

 private:
  Shape(const SchemaNode* schema, bool root, bool metadata = false)
      : schema_(schema), is_root_(root), is_metadata_(metadata) {}

  const SchemaNode* schema_ = nullptr;
  bool is_root_ = false;
  bool is_metadata_ = false;
};

// The elements of a granular list by their keys, in their order; of those that are there twice the
// first. nullopt: not all of them have a key, and the list counts as one field.
struct ElementIndex {
  std::vector<std::pair<std::string, const Json*>> order;
  std::unordered_map<std::string, const Json*> by_key;

  static std::optional<ElementIndex> of(const Shape& list, const Json& elements);
  const Json* find(const std::string& key) const;
};

}  // namespace lockstep::local
