#pragma once

#include <optional>

#include "local/store/request.h"
#include "local/store/resources.h"

namespace lockstep::local {

// Returns the error if a real server would refuse a new Event. `event` has the v1 form, in which it
// is stored. `view` is the type that it was sent as: events.k8s.io/v1 requires more than v1.
// Source: observed on kube-apiserver 1.20.2 (tests/conformance/events_test.cc).
std::optional<ApiResponse> check_new_event(const ResourceType& view, const Json& event);

}  // namespace lockstep::local
