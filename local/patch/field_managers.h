#pragma once

#include <string>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "local/patch/patch.h"
#include "local/schema/schema.h"

namespace lockstep::local {

// metadata.managedFields and server-side apply: which manager wants which field. Never owned by
// anyone: apiVersion, kind, and of metadata the name, the namespace and what the server sets.
// `schema` is that of the kind, without its metadata, which is known here. Objects came out of
// parse_json, whose bounds hold for them; none of the functions throws.
// Source: Kubernetes, "Server-Side Apply"; sigs.k8s.io/structured-merge-diff for the meaning of
// sets of fields.

// Who writes, and through which door.
struct FieldWriter {
  std::string manager;      // fieldManager of the request, else the first word of its User-Agent
  std::string api_version;  // of the request's type
  std::string subresource;  // "", status, scale
  WallTime now;
};

struct ApplyConflict {
  std::string manager;  // that owns the field
  std::string field;    // ".spec.nodes", as kubectl prints it
  std::string message;  // `conflict with "kubectl-client-side-apply" using lockstep.dev/v1alpha1`
};

// The message of the 409 that conflicts end in.
std::string conflict_message(const std::vector<ApplyConflict>& conflicts);

// Server-side apply of `intent` by `writer` on `live` (null: there is none yet): the new object,
// with managedFields; or the conflicts, unless `force` takes the fields over; or why the intent is
// none (managedFields in it, another version, a field that the schema does not know, a list
// without its keys). What the manager applied before and leaves out now is removed unless another
// one applies it too. An apply that changes nothing returns `live` as it was. An object that
// nobody's fields were recorded of belongs to `before-first-apply` from then on.
using ApplyResult = std::variant<Json, std::vector<ApplyConflict>, PatchError>;
ApplyResult apply_intent(const SchemaNode& schema, const Json* live, const Json& intent,
                         const FieldWriter& writer, bool force);

// After any other write: `object` is what will be stored instead of `live` (null: it is new).
// Fields that the writer changed are its own from now on, and nobody else's; fields that are gone
// are nobody's. Sets metadata.managedFields of `object` (operation Update). What a client sent
// there replaces what was recorded if it is well-formed and no subresource is written; an empty
// list, or one empty entry, ends the recording until the next apply; all else counts for nothing.
void record_update(const SchemaNode& schema, const Json* live, Json& object,
                   const FieldWriter& writer);

}  // namespace lockstep::local
