#pragma once

#include <optional>
#include <string_view>

#include "local/store/request.h"
#include "local/store/status_error.h"

namespace lockstep::local {

// Answers `kubectl auth can-i`: POSTs of SelfSubjectAccessReview and SelfSubjectRulesReview
// (authorization.k8s.io/v1). The only user may do everything. Stores nothing. nullopt for any other
// path.
// Source: Kubernetes, "Authorization: checking API access"; observed on kube-apiserver 1.20.2.
std::optional<ApiResponse> review_access(const ApiPath& path, const ApiRequest& request);

inline constexpr char kAccessGroup[] = "authorization.k8s.io";
// Returns the entries of the group's list of resources.
Json access_resources();

}  // namespace lockstep::local
