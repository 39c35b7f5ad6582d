#pragma once

#include <optional>
#include <string_view>

#include "cli/local/store/resources.h"
#include "common/base/json.h"

namespace lockstep::local {

// What a client asks before it knows the server: /version, /api, /apis, and the lists of resources
// below them. nullopt for any other path.
std::optional<Json> discovery_document(const TypeRegistry& types, std::string_view path);

}  // namespace lockstep::local
