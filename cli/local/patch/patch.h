#pragma once

#include "cli/local/schema/schema.h"
#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// Patches of objects, as functions from documents to documents. None of them throws, recurses
// beyond the depth that parse_json allows, or makes a document larger than `bytes_max`.

struct PatchLimits {
  size_t operations_max = 10'000;  // of a JSON patch, as kube-apiserver bounds it
  size_t bytes_max = 3u << 20;     // of the result, as JSON text
};

// RFC 6902. kInvalid: not a patch, or an operation that can't be carried out (a path that is not
// there, a failed test), with its index.
Result<Json> apply_json_patch(const Json& object, const Json& patch,
                              const PatchLimits& limits = {});

// RFC 7386.
Result<Json> apply_merge_patch(const Json& object, const Json& patch,
                               const PatchLimits& limits = {});

// Kubernetes' strategic merge: lists with a merge key are merged element by element; `$patch`
// (replace, delete, merge), `$deleteFromPrimitiveList/<list>`, `$setElementOrder/<list>`,
// `$retainKeys`. Source: Kubernetes, contributors' "Strategic Merge Patch".
Result<Json> apply_strategic_patch(const SchemaNode& schema, const Json& object, const Json& patch,
                                   const PatchLimits& limits = {});

}  // namespace lockstep::local
