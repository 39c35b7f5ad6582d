#pragma once

#include <optional>
#include <string_view>

#include "local/store/request.h"
#include "local/store/status_error.h"

namespace lockstep::local {

inline constexpr char kAccessGroup[] = "authorization.k8s.io";
inline constexpr char kSubjectGroup[] = "authentication.k8s.io";
// The only user, as the kubeconfig of `lockstep up` names it.
inline constexpr char kUserName[] = "lockstep";

// Answers `kubectl auth can-i`: POSTs of SelfSubjectAccessReview and SelfSubjectRulesReview
// (authorization.k8s.io/v1), and `kubectl auth whoami`: of SelfSubjectReview
// (authentication.k8s.io/v1). The only user may do everything. Stores nothing. nullopt for any
// other path. Source: Kubernetes, "Authorization: checking API access"; observed on
// kube-apiserver 1.20.2. SelfSubjectReview: Kubernetes 1.28, "Authenticating: API access to
// authentication information".
std::optional<ApiResponse> review_access(const ApiPath& path, const ApiRequest& request);

// Returns the entries of the list of resources of one of these groups; empty for any other.
Json review_resources(std::string_view group);

}  // namespace lockstep::local
