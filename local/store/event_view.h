#pragma once

#include "common/base/json.h"
#include "local/store/resources.h"

namespace lockstep::local {

// Events are served as v1 and as events.k8s.io/v1, and stored as v1. Versions of a custom type
// differ only in apiVersion. Other types pass through unchanged.
// Source: k8s pkg/apis/events/v1/conversion.go.
Json to_view(const ResourceType& type, Json stored);
Json from_view(const ResourceType& type, Json object);

}  // namespace lockstep::local
