#pragma once

#include <optional>

#include "local/store/object_rules.h"

namespace lockstep::local {

// What kube-apiserver knows of single built-in kinds: defaults, values that it gives, what must not
// change. Checked is what Lockstep or kubectl relies on, not all that a real server checks.
// Source: k8s pkg/apis/core/{v1/defaults.go,validation/validation.go}.

std::optional<ApiResponse> complete_new(const ResourceType& type, const CreateContext& context,
                                        Json& object);
// `object` has the metadata and status that it will be stored with.
std::optional<ApiResponse> complete_updated(const ResourceType& type, const UpdateContext& context,
                                            Json& object);

}  // namespace lockstep::local
