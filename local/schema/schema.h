#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

class Pattern;

// How merges identify the elements of a list.
enum class ListType { kAtomic, kSet, kMap };

// One compiled node of a structural schema, such as a CRD's openAPIV3Schema. Validation, pruning,
// defaults, merges and OpenAPI documents read it. Immutable once compiled.
// Source: Kubernetes, "Custom Resource Definitions: specifying a structural schema", and
// "Server-Side Apply: merge strategy".
struct SchemaNode {
  std::string type;  // object, array, string, integer, number, boolean; "": anything
  std::string format;
  std::string description;
  std::map<std::string, SchemaNode, std::less<>> properties;
  std::unique_ptr<SchemaNode> additional;  // from additionalProperties; null: none
  std::unique_ptr<SchemaNode> items;       // of arrays; null: they may be anything
  std::vector<std::string> required;
  bool nullable = false;
  bool int_or_string = false;
  bool preserve_unknown = false;  // x-kubernetes-preserve-unknown-fields
  bool embedded_resource = false;
  std::optional<Json> default_value;
  std::vector<Json> enum_values;
  std::optional<double> minimum, maximum;
  bool exclusive_minimum = false, exclusive_maximum = false;
  std::optional<int64_t> length_min, length_max, items_min, items_max, properties_min,
      properties_max;
  std::optional<double> multiple_of;
  std::string pattern;
  std::shared_ptr<const Pattern> matcher;  // the compiled pattern; null: none
  ListType list_type = ListType::kAtomic;  // x-kubernetes-list-type
  std::vector<std::string> list_keys;      // x-kubernetes-list-map-keys
  bool atomic_object = false;              // x-kubernetes-map-type: atomic
  // For strategic merge patches, which only built-in kinds support: the key of a merging list ("":
  // plain values), and whether a list or object merges at all.
  std::string merge_key;
  bool merges = false;

  // Returns the member's schema, from properties or else from additional; null for an unknown
  // field.
  const SchemaNode* member(std::string_view name) const;
};

// One violation, as kube-apiserver reports it in details.causes.
struct SchemaProblem {
  std::string reason;   // FieldValueInvalid, FieldValueRequired, FieldValueTypeInvalid, ...
  std::string message;  // `Invalid value: "x": spec.nodes in body should be ...`
  std::string field;    // spec.train.model
};

// Compiles the schema of a CRD's version. kInvalid if it is not structural; the message has the
// path in the schema and kube-apiserver's reason: `openAPIV3Schema.properties[spec].type: Required
// value: must not be empty for specified object fields`. CEL rules (x-kubernetes-validations) are
// accepted and ignored, as servers before 1.25 do. Unknown keywords are refused, and so are allOf,
// anyOf, oneOf and not, except for the anyOf that spells out x-kubernetes-int-or-string. At most 48
// levels and 20,000 nodes.
Result<std::shared_ptr<const SchemaNode>> compile_schema(const Json& open_api_v3_schema);

// Returns the schema of a built-in kind as far as merges need it: it keeps unknown fields and does
// not check types. Never null: in a kind without a schema, only objects merge.
std::shared_ptr<const SchemaNode> built_in_schema(std::string_view api_version,
                                                  std::string_view kind);

// Returns all violations in document order, at most `problems_max`. The caller checks apiVersion,
// kind and metadata of the root; those of embedded resources are checked here. Apply defaults
// first: the values that they fill in are checked too.
std::vector<SchemaProblem> validate(const SchemaNode& schema, const Json& object,
                                    size_t problems_max = 64);
// Removes fields that the schema does not know, except apiVersion, kind and metadata of the root.
// Returns the removed paths ("spec.foo", "spec.list[2].bar") for strict field validation and
// warnings.
std::vector<std::string> prune(const SchemaNode& schema, Json& object);
// Removes nulls of members that are not nullable, and fills in defaults of absent members, outer
// objects first.
void apply_defaults(const SchemaNode& schema, Json& object);

}  // namespace lockstep::local
