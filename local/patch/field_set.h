#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// Sets of fields, encoded as in managedFields (FieldsV1): a tree of objects with these keys:
// - `f:<name>`: a member
// - `k:<keys as JSON>`: a list element, by its keys
// - `v:<JSON>`: a list element, by its value
// - `i:<index>`: a list element, by its index
//
// A node without children is in the set. A node with children is in the set only if it has the key
// `.` too. The root, {} for the empty set, is never in the set.
// Source: sigs.k8s.io/structured-merge-diff, fieldpath/serialize.go.

inline constexpr const char* kSelf = ".";

bool is_member(const Json& node);

// Adds `node` itself to the set or removes it. Returns false if nothing is left, not even below it.
bool set_membership(Json& node, bool member);

void merge_into(Json& set, const Json& other);
// Removes the fields of `other`, but not the fields below them.
void subtract(Json& set, const Json& other);
Json intersect(const Json& a, const Json& b);

// Returns the child with this key; null if there is none, or if `set` is null.
const Json* child_of(const Json* set, const std::string& key);

// Returns the paths as kubectl prints them: `.spec.containers[name="a"].image`.
std::vector<std::string> field_paths(const Json& set);

// Checks and normalizes a set from a client for the functions above. kInvalid if it is not a set.
Result<Json> read_field_set(const Json& fields);

}  // namespace lockstep::local
