#pragma once

#include <span>
#include <string_view>

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

// The row, or null. A name without a row of the package is looked up in core and meta.
const TypeRow* find_type(std::string_view package, std::string_view name);

}  // namespace lockstep::local
