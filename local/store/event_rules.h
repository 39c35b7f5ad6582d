#pragma once

#include <optional>

#include "local/store/request.h"
#include "local/store/resources.h"

namespace lockstep::local {

// Why a real server refuses a new Event, if it does. `event` is in the form of v1, in which it is
// stored; `view` is the type that it was sent as: events.k8s.io/v1 asks for more than v1 does.
// Source: kube-apiserver 1.20.2, asked (tests/conformance/events_test.cc).
std::optional<ApiResponse> check_new_event(const ResourceType& view, const Json& event);

}  // namespace lockstep::local
