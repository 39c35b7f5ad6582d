#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"

namespace lockstep::local {

// Readers for objects that the server has let through, whatever they hold: the member, or an empty
// one of the right type where it is absent or another type.
const Json& object_of(const Json& object, std::string_view key);
const Json& array_of(const Json& object, std::string_view key);

// spec.nodeName; empty while the pod is not placed.
std::string node_of(const Json& pod);
// status.phase is Succeeded or Failed: nothing of it runs any more.
bool is_terminal(const Json& pod);
bool is_deleting(const Json& object);
// "/api/v1/namespaces/x/pods/name" and what follows.
std::string pod_target(const Json& pod, std::string_view suffix = "");

}  // namespace lockstep::local
