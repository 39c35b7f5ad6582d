#pragma once

#include <string>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "local/patch/patch.h"
#include "local/schema/schema.h"

namespace lockstep::local {

// metadata.managedFields and server-side apply: which manager owns which field. Nobody owns
// apiVersion, kind, or the name, namespace and server-set fields of metadata. `schema` is the
// kind's schema; it does not describe metadata, whose schema is built in. Objects must come from
// parse_json, which bounds them. None of the functions throws.
// Source: Kubernetes, "Server-Side Apply"; sigs.k8s.io/structured-merge-diff for the meaning of
// sets of fields.

// The writer of an object, and the request it writes with.
struct FieldWriter {
  std::string manager;      // fieldManager of the request, else the first word of its User-Agent
  std::string api_version;  // of the object in the request
  std::string subresource;  // "", status, scale
  WallTime now;
};

struct ApplyConflict {
  std::string manager;  // the field's owner
  std::string field;    // ".spec.nodes", as kubectl prints it
  std::string message;  // `conflict with "kubectl-client-side-apply" using lockstep.dev/v1alpha1`
};

// Returns the message of the 409 response for these conflicts.
std::string conflict_message(const std::vector<ApplyConflict>& conflicts);

// Applies `intent` to `live` (null: the object does not exist yet) for `writer`. Returns one of
// - the new object, with managedFields;
// - the conflicts, unless `force` takes the fields over;
// - the error in the intent: it has managedFields, another version, a field that the schema does
//   not know, or a list element without its keys.
//
// Fields that the manager applied before and now leaves out are removed, unless another manager
// owns them too. An apply that changes nothing returns `live` unchanged. If `live` has no recorded
// managers, its fields belong to `before-first-apply` from then on.
using ApplyResult = std::variant<Json, std::vector<ApplyConflict>, PatchError>;
ApplyResult apply_intent(const SchemaNode& schema, const Json* live, const Json& intent,
                         const FieldWriter& writer, bool force);

// Records any other write: `object` will be stored instead of `live` (null: it is new). The writer
// becomes the only owner of the fields it changed; removed fields lose their owners. Sets
// metadata.managedFields of `object` (operation Update). managedFields from the client count only
// if the write is not to a subresource:
// - a well-formed list replaces the recorded one;
// - an empty list, or one empty entry, stops the recording until the next apply;
// - anything else is ignored.
void record_update(const SchemaNode& schema, const Json* live, Json& object,
                   const FieldWriter& writer);

}  // namespace lockstep::local
