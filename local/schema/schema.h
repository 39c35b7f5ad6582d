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

// How the elements of a list are told apart by merges.
enum class ListType { kAtomic, kSet, kMap };

// One node of a structural schema, as a CRD's openAPIV3Schema has it, compiled: plain data that
// validation, pruning, defaults, merges and OpenAPI documents read. Immutable once compiled.
// Source: Kubernetes, "Custom Resource Definitions: specifying a structural schema", and
// "Server-Side Apply: merge strategy".
struct SchemaNode {
  std::string type;  // object, array, string, integer, number, boolean; "": anything
  std::string format;
  std::string description;
  std::map<std::string, SchemaNode, std::less<>> properties;
  std::unique_ptr<SchemaNode> additional;  // of additionalProperties; null: none
  std::unique_ptr<SchemaNode> items;       // of arrays; null where they may be anything
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
  std::shared_ptr<const Pattern> matcher;  // of pattern; null where there is none
  ListType list_type = ListType::kAtomic;  // x-kubernetes-list-type
  std::vector<std::string> list_keys;      // x-kubernetes-list-map-keys
  bool atomic_object = false;              // x-kubernetes-map-type: atomic
  // Of strategic merge patches, which only built-in kinds know: the key of a merging list ("": of
  // plain values), and whether a list or object merges at all.
  std::string merge_key;
  bool merges = false;

  // The member's schema: of properties, else additional; null where there is none (unknown field).
  const SchemaNode* member(std::string_view name) const;
};

// One violation, as kube-apiserver reports it in details.causes.
struct SchemaProblem {
  std::string reason;   // FieldValueInvalid, FieldValueRequired, FieldValueTypeInvalid, ...
  std::string message;  // `Invalid value: "x": spec.nodes in body should be ...`
  std::string field;    // spec.train.model
};

// The schema of a CRD's version. kInvalid reads `openAPIV3Schema.properties[spec].type: Required
// value: must not be empty for specified object fields`: the path in the schema, and in
// kube-apiserver's words why it is not structural. CEL rules (x-kubernetes-validations) are taken
// and mean nothing, as to servers before 1.25; allOf, anyOf, oneOf and not (but for what
// x-kubernetes-int-or-string says itself), and words that this server doesn't know, are refused
// rather than ignored. At most 48 levels and 20,000 nodes.
Result<std::shared_ptr<const SchemaNode>> compile_schema(const Json& open_api_v3_schema);

// The schema of a built-in kind as far as merges need it (unknown fields are kept, types are not
// checked); never null: a kind without one merges nothing but objects.
std::shared_ptr<const SchemaNode> built_in_schema(std::string_view api_version,
                                                  std::string_view kind);

// All violations, in the order of the document, at most `problems_max`. apiVersion, kind and
// metadata of the root are the caller's business; those of embedded resources are checked.
// Defaults come first: what they fill in counts.
std::vector<SchemaProblem> validate(const SchemaNode& schema, const Json& object,
                                    size_t problems_max = 64);
// Removes what the schema does not know (never apiVersion, kind, metadata of the root); the paths
// that were removed ("spec.foo", "spec.list[2].bar"), for strict field validation and warnings.
std::vector<std::string> prune(const SchemaNode& schema, Json& object);
// Removes nulls of members that can't be null, and fills in defaults of absent members, from the
// outside in.
void apply_defaults(const SchemaNode& schema, Json& object);

}  // namespace lockstep::local
