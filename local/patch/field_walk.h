#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "local/patch/shape.h"

namespace lockstep::local {

// What server-side apply does along two objects at once. Sets of fields are those of field_set.h;
// fields that nobody owns are in none of them.

struct FieldChanges {
  Json added = Json::object();
  Json modified = Json::object();
  Json removed = Json::object();

  bool empty() const { return added.empty() && modified.empty() && removed.empty(); }
};
// From `before` to `after`; what is added or removed as a whole is in its set with all of its
// parts.
FieldChanges compare_fields(const Shape& shape, const Json& before, const Json& after);

// What an intent asks for: its leaves, the entries of its maps, the elements of its lists.
Json intended_fields(const Shape& shape, const Json& intent);

// Why a server can't apply it, by path: `.spec.nodez: field not declared in schema`. At most ten.
std::vector<std::string> intent_problems(const Shape& shape, const Json& intent);

// `live` with all that the intent says: members and elements merge one by one, leaves are
// replaced. Elements come in the order of the intent, those that it does not name stay where they
// were among their neighbours. The intent has no problems.
Json merge_intent(const Shape& shape, const Json& live, const Json& intent);

// Removes what is in `last`, with all below it, unless `kept` has it or something below it; and
// objects and lists that lose their last part by that, unless `kept` has them.
void remove_fields(const Shape& shape, Json& value, const Json& last, const Json& kept);

}  // namespace lockstep::local
