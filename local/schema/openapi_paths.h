#pragma once

#include "local/schema/openapi.h"
#include "local/schema/openapi_definitions.h"

namespace lockstep::local {

// Adds the paths of a resource with their operations. kubectl reads from them the kind of a
// resource and the query parameters of its operations.
void add_paths(OpenApiVersion version, const OpenApiResource& resource,
               const std::string& definition, Json& paths);

// Returns a path such as "/apis/lockstep.dev/v1alpha1" or "/api/v1".
std::string group_path(const OpenApiResource& resource);

}  // namespace lockstep::local
