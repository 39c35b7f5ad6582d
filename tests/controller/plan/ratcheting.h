#pragma once

#include <string_view>

#include "common/base/json.h"

namespace lockstep::plan {

// Returns whether an API server takes the part of an object at `path` of the schema ("",
// "spec.failure.rules[]") for unchanged between `before` and `after`. It then does not refuse the
// write for a rule there that is violated, unless the rule mentions oldSelf, or its evaluation ends
// in an error. Servers do so for spec and status writes from Kubernetes 1.30 on; older ones refuse.
//
// Two properties matter here. An object with a member that the schema does not list, as all members
// of an object with x-kubernetes-preserve-unknown-fields, is never unchanged. An item of a list
// that has no counterpart is unchanged if the whole list is.
//
// Source: apiserver, pkg/cel/common/equality.go (CorrelatedObject), and apiextensions-apiserver,
// pkg/apiserver/schema/cel/validation.go (shouldRatchetError).
bool server_sees_unchanged(const Json& schema, std::string_view path, const Json& before,
                           const Json& after);

}  // namespace lockstep::plan
