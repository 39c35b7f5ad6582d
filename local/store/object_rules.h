#pragma once

#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "local/store/status_error.h"
#include "local/store/storage.h"

namespace lockstep::local {

// The steps that kube-apiserver takes before it stores an object. They depend only on the object.
// Each returns the error that ends the request, or nullopt.
// Source: k8s.io/apiserver, pkg/registry/rest/{create,update}.go and the strategies of the types.

struct CreateContext {
  std::string namespace_;  // from the path
  std::string uid;
  std::string name_suffix;  // for metadata.generateName
  WallTime now;
  uint64_t random = 0;  // for addresses of services
};

// Checks the object, sets server-owned fields (uid, creationTimestamp, generation), clears fields
// that a client may not set (status, deletionTimestamp), and fills in the defaults that this server
// relies on.
std::optional<ApiResponse> prepare_create(const ResourceType& type, const CreateContext& context,
                                          Json& object);

struct UpdateContext {
  const Json& old;
  ObjectKey key;            // from the path
  std::string subresource;  // "": all but the status changes; "status": only the status
};

// Turns `object` into what will be stored instead of `old`. 409 if its resourceVersion or UID
// differs; 422 if it changes an immutable field.
std::optional<ApiResponse> prepare_update(const ResourceType& type, const UpdateContext& context,
                                          Json& object);

// Removes labels, annotations, ownerReferences and finalizers that are empty or null.
void drop_empty(Json& metadata);

// Checks that kind and apiVersion match the path, and the types in metadata. Fills in kind and
// apiVersion if they are missing (a custom type must have them), and drops empty metadata.
std::optional<ApiResponse> check_kind(const ResourceType& type, Json& object);

// Checks for an RFC 1123 subdomain, which names of objects must be.
bool is_object_name(std::string_view name);
// is_qualified_name() checks `[prefix/]name`, as in label keys; is_label_text() checks such a name,
// or a label's value.
bool is_qualified_name(std::string_view key);
bool is_label_text(std::string_view text);
// Checks for an RFC 1123 label: no dots, at most 63 characters.
bool is_label_name(std::string_view name);

}  // namespace lockstep::local
