#pragma once

#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "local/store/status_error.h"
#include "local/store/storage.h"

namespace lockstep::local {

// What kube-apiserver does to an object on its way into storage, as functions of the object alone.
// Each returns the error that ends the request, or nullopt.
// Source: k8s.io/apiserver, pkg/registry/rest/{create,update}.go and the strategies of the types.

struct CreateContext {
  std::string namespace_;  // from the path
  std::string uid;
  std::string name_suffix;  // for metadata.generateName
  WallTime now;
  uint64_t random = 0;  // for addresses of services
};

// Checks the object, sets what the server owns (uid, creationTimestamp, generation), clears what a
// client may not set (status, deletionTimestamp), fills in the defaults that this server relies on.
std::optional<ApiResponse> prepare_create(const ResourceType& type, const CreateContext& context,
                                          Json& object);

struct UpdateContext {
  const Json& old;
  ObjectKey key;            // from the path
  std::string subresource;  // "": everything but the status; "status": nothing else
};

// Makes `object` what is to be stored instead of `old`: 409 where its resourceVersion or UID is
// another one, 422 where it changes what can't change.
std::optional<ApiResponse> prepare_update(const ResourceType& type, const UpdateContext& context,
                                          Json& object);

// Labels, annotations, ownerReferences and finalizers that are empty, or null, are shown as none.
void drop_empty(Json& metadata);

// kind and apiVersion are those of the path (filled in where they are missing; of a custom type
// they must be said), and the metadata is of the right types, without what is empty.
std::optional<ApiResponse> check_kind(const ResourceType& type, Json& object);

// RFC 1123 subdomain, as names of objects must be.
bool is_object_name(std::string_view name);
// `[prefix/]name`, as keys of labels are; the text of a name, or of a label's value.
bool is_qualified_name(std::string_view key);
bool is_label_text(std::string_view text);
// RFC 1123 label: without dots, at most 63 characters.
bool is_label_name(std::string_view name);

}  // namespace lockstep::local
