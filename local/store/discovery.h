#pragma once

#include <optional>
#include <string_view>

#include "common/base/json.h"
#include "local/store/resources.h"

namespace lockstep::local {

// Answers what a client asks before anything else: /version, /api, /apis, and the lists of
// resources below them. nullopt for any other path.
std::optional<Json> discovery_document(const TypeRegistry& types, std::string_view path);

}  // namespace lockstep::local
