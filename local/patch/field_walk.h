#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "local/patch/shape.h"

namespace lockstep::local {

// Server-side apply walks two objects in parallel. Sets of fields are those of field_set.h; they
// never contain fields that nobody owns.

struct FieldChanges {
  Json added = Json::object();
  Json modified = Json::object();
  Json removed = Json::object();
};
// Returns the changes from `before` to `after`. A value that is added or removed as a whole is in
// its set with all its parts.
FieldChanges compare_fields(const Shape& shape, const Json& before, const Json& after);

// Returns the fields that an intent sets: its leaves, map entries and list elements.
Json intended_fields(const Shape& shape, const Json& intent);

// Returns the reasons why the intent can't be applied, by path, at most ten:
// `.spec.nodez: field not declared in schema`.
std::vector<std::string> intent_problems(const Shape& shape, const Json& intent);

// Returns `live` merged with the intent: members and list elements merge one by one, leaves are
// replaced. Elements follow the order of the intent; those it does not name keep their place among
// their neighbours. The intent must have no problems.
Json merge_intent(const Shape& shape, const Json& live, const Json& intent);

// Removes the fields in `last` and everything below them, unless `kept` has them or something below
// them. Also removes objects and lists that become empty, unless `kept` has them.
void remove_fields(const Shape& shape, Json& value, const Json& last, const Json& kept);

}  // namespace lockstep::local
