#pragma once

#include <optional>
#include <string_view>

#include "local/store/request.h"
#include "local/store/status_error.h"

namespace lockstep::local {

// What one may do, as `kubectl auth can-i` asks by POST: SelfSubjectAccessReview and
// SelfSubjectRulesReview of authorization.k8s.io/v1. There is one user, who may do everything.
// Nothing is stored. nullopt for any other path.
// Source: Kubernetes, "Authorization: checking API access"; kube-apiserver 1.20.2, asked.
std::optional<ApiResponse> review_access(const ApiPath& path, const ApiRequest& request);

inline constexpr char kAccessGroup[] = "authorization.k8s.io";
// The entries of the group's list of resources.
Json access_resources();

}  // namespace lockstep::local
