#pragma once

#include "common/base/json.h"
#include "local/store/resources.h"

namespace lockstep::local {

// Events have two faces, v1 and events.k8s.io/v1, of the same stored objects (stored as v1).
// Source: k8s pkg/apis/events/v1/conversion.go. The versions of a custom type differ in apiVersion.
// Other types pass through unchanged.
Json to_view(const ResourceType& type, Json stored);
Json from_view(const ResourceType& type, Json object);

}  // namespace lockstep::local
