#pragma once

#include <optional>

#include "local/store/object_rules.h"

namespace lockstep::local {

// Rules of kube-apiserver for single built-in kinds: defaults, values that the server sets,
// immutable fields. Checks what Lockstep or kubectl rely on, not everything that a real server
// checks.
// Source: k8s pkg/apis/core/{v1/defaults.go,validation/validation.go}.

std::optional<ApiResponse> complete_new(const ResourceType& type, const CreateContext& context,
                                        Json& object);
// `object` already has the metadata and status that will be stored.
std::optional<ApiResponse> complete_updated(const ResourceType& type, const UpdateContext& context,
                                            Json& object);

}  // namespace lockstep::local
