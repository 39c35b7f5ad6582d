#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace lockstep::local {

// One type of Kubernetes' own objects. `fields` are words `name:type`, where a type is string,
// bytes (base64), bool, int32, int64, double, time, quantity, intOrString, any, the name of another
// row (of this package, core or meta), []T or map[T]. Marks:
// - `~` as the first word, or after a map: applies replace the object or map as a whole
// - `/key`: strategic patches and applies merge this list by that member (`/` alone: a list of
//   plain values); `/key+` adds the retainKeys strategy
// - `@a,b`: applies merge this list by these members, whatever /key says
// - `!`: required
// - `=text`: default of a string
struct TypeRow {
  std::string_view package;  // core, meta, events, coordination, apiextensions, autoscaling
  std::string_view name;
  std::string_view fields;
};

// Return all rows. A type that isn't spelled out (volumes of storage systems, the schema of a CRD)
// is `any`.
// Source: Kubernetes 1.20's api/openapi-spec/swagger.json (names, types, merge keys), and the API
// reference of 1.33 for what is newer.
std::span<const TypeRow> pod_types();
std::span<const TypeRow> other_types();

// One parsed word of a row.
struct TypeField {
  std::string_view name;
  std::string_view type;  // type of the items if it is a list
  bool is_list = false;
  bool is_required = false;
  bool is_atomic = false;
  bool is_merged = false;      // by strategic patches
  bool retains_keys = false;   // by strategic patches
  std::string_view merge_key;  // "" for plain values
  std::vector<std::string_view> list_keys;
  std::string_view default_text;
};

struct TypeFields {
  bool is_atomic = false;
  std::vector<TypeField> fields;
};
TypeFields fields_of(const TypeRow& row);

// Returns the description of a type (field "") or of one of its fields; "" if there is none.
std::string_view type_description(std::string_view type, std::string_view field);

// Returns the package of an apiVersion; "" if there is none.
std::string_view package_of(std::string_view api_version);

// Returns the row, or null. If the package has no such row, looks in core and meta.
const TypeRow* find_type(std::string_view package, std::string_view name);

}  // namespace lockstep::local
