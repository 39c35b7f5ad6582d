#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"

namespace lockstep::local {

// Return a member of an object that the server accepted but that may hold anything. If the member
// is absent or has another type: an empty value of the right type.
const Json& object_of(const Json& object, std::string_view key);
const Json& array_of(const Json& object, std::string_view key);

// Returns spec.nodeName; empty while the pod is not placed.
std::string node_of(const Json& pod);
// True if status.phase is Succeeded or Failed: none of its processes run any more.
bool is_terminal(const Json& pod);
bool is_deleting(const Json& object);
// Returns "/api/v1/namespaces/x/pods/name" followed by `suffix`.
std::string pod_target(const Json& pod, std::string_view suffix = "");

}  // namespace lockstep::local
