#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace lockstep::local {

// One type of Kubernetes' own objects. `fields` are words `name:type`, by the alphabet:
//   types        string bytes(base64) bool int32 int64 double time quantity intOrString any, the
//   name
//                of another row (of this package, core or meta), []T, map[T]
//   ~            (first word) the object is replaced as a whole by applies; after a map: likewise
//   /key         a list that strategic patches merge by that member ("/" alone: of plain values),
//                and applies too; /key+ with the retainKeys strategy as well
//   @a,b         a list that applies merge by these members, instead of or without /key
//   !            required
//   =text        a string's default
struct TypeRow {
  std::string_view package;  // core, meta, events, coordination, apiextensions, autoscaling
  std::string_view name;
  std::string_view fields;
};

// All of them. Where a type isn't spelled out (storage systems' volumes, the schema of a CRD) it is
// `any`. Source: Kubernetes 1.20's api/openapi-spec/swagger.json (names, types, merge keys), with
// what the API reference of 1.33 has beyond it.
std::span<const TypeRow> pod_types();
std::span<const TypeRow> other_types();

// A word of a row, taken apart.
struct TypeField {
  std::string_view name;
  std::string_view type;  // of the items, where it is a list
  bool is_list = false;
  bool is_required = false;
  bool is_atomic = false;
  bool is_merged = false;      // by strategic patches
  bool retains_keys = false;   // likewise
  std::string_view merge_key;  // "": of plain values
  std::vector<std::string_view> list_keys;
  std::string_view default_text;
};

struct TypeFields {
  bool is_atomic = false;
  std::vector<TypeField> fields;
};
TypeFields fields_of(const TypeRow& row);

// What people are told about a type (field ""), or about one of its fields; "" where nothing is.
std::string_view words_about(std::string_view type, std::string_view field);

// The group of a package's types: "apps" has "apps/v1"; core has "". All are of version v1.
std::string_view group_of_package(std::string_view package);
// "" for an apiVersion that no package here has.
std::string_view package_of(std::string_view api_version);

// The row, or null. A name without a row of the package is looked up in core and meta.
const TypeRow* find_type(std::string_view package, std::string_view name);

}  // namespace lockstep::local
