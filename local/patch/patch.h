#pragma once

#include <string>
#include <variant>

#include "common/base/json.h"
#include "local/schema/schema.h"

namespace lockstep::local {

// Patches of objects, as functions from documents to documents. None of them throws, nests a
// document deeper than `depth_max`, makes one larger than `bytes_max`, or takes more than a second.
// Object and patch came out of parse_json, whose bounds hold for them.

struct PatchLimits {
  size_t operations_max = 10'000;  // of a JSON patch, as kube-apiserver bounds it
  size_t bytes_max = 3u << 20;     // of the result as JSON text, and of all that a patch copies
  size_t depth_max = 64;
};

struct PatchError {
  // What HTTP calls it: 400 it is not a patch; 413 it asks for too much; 422 the object does not
  // let it be carried out (a path that is not there, a failed test).
  int code = 400;
  std::string message;  // as kube-apiserver words it, where it has words
};
using PatchResult = std::variant<Json, PatchError>;

// RFC 6902, with two differences, both kube-apiserver's: the document as a whole (path "") can't be
// named, and a test for null holds where there is no such member.
PatchResult apply_json_patch(const Json& object, const Json& patch, const PatchLimits& limits = {});

// RFC 7386.
PatchResult apply_merge_patch(const Json& object, const Json& patch,
                              const PatchLimits& limits = {});

// Kubernetes' strategic merge: lists that merge do so element by element, told apart by their merge
// key, or by their values; other lists are replaced; objects merge, known or not. Directives:
// `$patch` (replace and delete of objects, of elements, and of whole lists),
// `$deleteFromPrimitiveList/<list>`, `$setElementOrder/<list>`, `$retainKeys`.
// Source: Kubernetes, contributors' "Strategic Merge Patch".
PatchResult apply_strategic_patch(const SchemaNode& schema, const Json& object, const Json& patch,
                                  const PatchLimits& limits = {});

}  // namespace lockstep::local
