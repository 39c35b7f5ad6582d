#pragma once

#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "local/store/resources.h"
#include "local/store/status_error.h"

namespace lockstep::local {

// CustomResourceDefinitions, as functions of the object alone.
// Source: Kubernetes, apiextensions.k8s.io/v1; k8s.io/apiextensions-apiserver, pkg/apiserver and
// pkg/controller/{status,establish,finalizer}.

inline constexpr size_t kCustomTypesMax = 200;
// Keeps the definition until its objects are gone.
inline constexpr char kCrdFinalizer[] = "customresourcecleanup.apiextensions.k8s.io";

// Checks spec and fills in its defaults (singular, listKind, conversion); `old` is null on create.
std::optional<ApiResponse> check_crd(const ResourceType& crd_type, const Json* old, Json& crd);

// What the server's own controllers write at once: the finalizer, accepted names, storedVersions
// and the conditions NamesAccepted and Established. True if the names are free, so that the type
// can be served.
bool accept_crd(const TypeRegistry& types, WallTime now, Json& crd);

// The types that it defines, one a version. kInvalid names the path of what is no schema.
Result<std::vector<ResourceType>> types_of_crd(const Json& crd);

}  // namespace lockstep::local
