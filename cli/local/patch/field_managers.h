#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cli/local/schema/schema.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// metadata.managedFields and server-side apply. Source: Kubernetes, "Server-Side Apply";
// sigs.k8s.io/structured-merge-diff for the meaning of sets of fields.

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

// Server-side apply of `intent` by `writer` on `live` (null: there is none yet): the new object,
// with managedFields; or the conflicts, unless `force` takes the fields over; or kInvalid (an
// intent with managedFields, a list without its keys, ...). What the manager applied before and
// leaves out now is removed unless another manager owns it too. An apply that changes nothing
// returns `live` as it was.
using ApplyResult = std::variant<Json, std::vector<ApplyConflict>, Error>;
ApplyResult apply_intent(const SchemaNode& schema, const Json* live, const Json& intent,
                         const FieldWriter& writer, bool force);

// After any other write: `object` is what will be stored instead of `live` (null: it is new).
// Fields that the writer changed are its own from now on, and nobody else's; fields that are gone
// are nobody's. Sets metadata.managedFields of `object` (operation Update); entries that a client
// sent in `object` count for nothing but for an empty list, which resets them.
void record_update(const SchemaNode& schema, const Json* live, Json& object,
                   const FieldWriter& writer);

}  // namespace lockstep::local
