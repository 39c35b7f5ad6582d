#pragma once

#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "local/store/resources.h"
#include "local/store/status_error.h"

namespace lockstep::local {

// Functions on CustomResourceDefinitions; they depend only on the object.
// Source: Kubernetes, apiextensions.k8s.io/v1; k8s.io/apiextensions-apiserver, pkg/apiserver and
// pkg/controller/{status,establish,finalizer}.

inline constexpr size_t kCustomTypesMax = 200;
// Keeps the CRD until its objects are gone.
inline constexpr char kCrdFinalizer[] = "customresourcecleanup.apiextensions.k8s.io";

// Checks the spec and fills in its defaults (singular, listKind, conversion). `old` is null on
// create.
std::optional<ApiResponse> check_crd(const ResourceType& crd_type, const Json* old, Json& crd);

// Writes immediately what the server's own controllers would write: the finalizer, accepted names,
// storedVersions and the conditions NamesAccepted and Established. Returns true if the names are
// free, so that the type can be served.
bool accept_crd(const TypeRegistry& types, WallTime now, Json& crd);

// Returns the types that the CRD defines, one per version, the storage version first. kInvalid
// gives the path of an invalid schema.
Result<std::vector<ResourceType>> types_of_crd(const Json& crd);

}  // namespace lockstep::local
