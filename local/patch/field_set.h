#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// Sets of fields, in the encoding that managedFields have (FieldsV1): a tree of objects whose keys
// are `f:<name>` (a member), `k:<keys as JSON>` (an element of a list by its keys), `v:<JSON>` (an
// element by its value), `i:<index>`. A node without children is in the set; one with children is
// if it has the key `.` too. The root, {} when the set is empty, is never in it.
// Source: sigs.k8s.io/structured-merge-diff, fieldpath/serialize.go.

inline constexpr const char* kSelf = ".";

bool is_member(const Json& node);

// Makes `node` say whether it is in the set itself. False: nothing is left of it.
bool settle(Json& node, bool member);

void unite(Json& set, const Json& other);
// Takes away the fields of `other` themselves, not those below them.
void subtract(Json& set, const Json& other);
Json intersect(const Json& a, const Json& b);

// The child with this key; null if there is none, or no set.
const Json* child_of(const Json* set, const std::string& key);

// As kubectl prints them: `.spec.containers[name="a"].image`.
std::vector<std::string> field_paths(const Json& set);

// A set from outside in the form that the functions above rely on; kInvalid: it is none.
Result<Json> read_field_set(const Json& fields);

}  // namespace lockstep::local
