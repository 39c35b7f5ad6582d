#pragma once

#include "local/schema/openapi.h"
#include "local/schema/openapi_definitions.h"

namespace lockstep::local {

// Adds the paths of a resource with their operations. kubectl reads from them which kind a resource
// has, and which query parameters its operations take.
void add_paths(OpenApiVersion version, const OpenApiResource& resource,
               const std::string& definition, Json& paths);

// "/apis/lockstep.dev/v1alpha1", "/api/v1".
std::string group_path(const OpenApiResource& resource);

}  // namespace lockstep::local
