#pragma once

#include <string>
#include <variant>

#include "common/base/json.h"
#include "local/schema/schema.h"

namespace lockstep::local {

// Functions that apply a patch to an object and return the result. They do not throw, nest a
// document deeper than `depth_max`, make one larger than `bytes_max`, or take more than a second.
// Object and patch must come from parse_json, which bounds them.

struct PatchLimits {
  size_t operations_max = 10'000;  // in a JSON patch; kube-apiserver's limit
  size_t bytes_max = 3u << 20;     // of the result as JSON text, and of all that a patch copies
  size_t depth_max = 64;
};

struct PatchError {
  // HTTP status: 400 not a patch; 413 too large or too much work; 422 the object does not allow it
  // (a missing path, a failed test).
  int code = 400;
  std::string message;  // kube-apiserver's wording, where it has one
};
using PatchResult = std::variant<Json, PatchError>;

// Applies a JSON patch (RFC 6902), with two differences that kube-apiserver has too: the whole
// document (path "") can't be addressed, and a test for null succeeds if the member does not exist.
PatchResult apply_json_patch(const Json& object, const Json& patch, const PatchLimits& limits = {});

// Applies a JSON merge patch (RFC 7386).
PatchResult apply_merge_patch(const Json& object, const Json& patch,
                              const PatchLimits& limits = {});

// Applies a Kubernetes strategic merge patch. Objects merge, whether or not the schema knows them.
// Mergeable lists merge by element, identified by merge key or by value; other lists are replaced.
// Directives:
// - `$patch` (replaces and deletes objects, elements, and whole lists)
// - `$deleteFromPrimitiveList/<list>`
// - `$setElementOrder/<list>`
// - `$retainKeys`
//
// Source: Kubernetes, contributors' "Strategic Merge Patch".
PatchResult apply_strategic_patch(const SchemaNode& schema, const Json& object, const Json& patch,
                                  const PatchLimits& limits = {});

}  // namespace lockstep::local
