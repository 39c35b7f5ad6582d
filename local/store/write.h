#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "local/patch/field_managers.h"
#include "local/store/request.h"
#include "local/store/resources.h"
#include "local/store/status_error.h"

namespace lockstep::local {

// How the server treats fields that a schema does not know.
enum class FieldValidation { kIgnore, kWarn, kStrict };

// One create, update or patch in progress: what the request specifies in addition to the object.
// Source: Kubernetes, CreateOptions, UpdateOptions and PatchOptions of meta/v1.
struct Write {
  const ApiPath& path;
  std::string manager;
  bool dry_run = false;
  bool force = false;
  FieldValidation validation = FieldValidation::kWarn;
  WallTime now;
  bool applied = false;  // managedFields already come from a server-side apply
  std::vector<std::string> warnings = {};
};

// 422: the requested dry run is not "All".
ApiResponse wrong_dry_run(const std::string& method, const std::string& value);

// Reads the write options of a request. 422 for invalid options.
std::variant<Write, ApiResponse> begin_write(const ApiPath& path, const ApiRequest& request,
                                             WallTime now);

// Returns the media type of the body, without its parameters.
std::string media_type(const ApiRequest& request);
// Parses a JSON, YAML or protobuf body. Errors have the server's wording.
std::variant<Json, ApiResponse> parse_body(const ApiRequest& request);
// Returns whether this type can be read from the body's encoding. Custom types have no protobuf.
bool is_document(const ApiRequest& request, const ResourceType& type);

// Removes fields that a custom type's schema does not know (Strict: fails with 400; Warn: adds a
// warning for each), and fills in defaults.
std::optional<ApiResponse> prune_and_default(Write& write, Json& object);
// Returns a 422 with a cause for each violation of a custom type's schema.
std::optional<ApiResponse> check_schema(const Write& write, const Json& object);

// Writes metadata.managedFields for an update or a patch; `live` is null if the object is new.
// Kinds that only programs write (pods, nodes, events, leases) get none, unless they are applied.
void record_fields(const Write& write, const Json* live, Json& object);

// Returns the object after a patch other than server-side apply. 415 if the type does not support
// such patches; 400, 413 and 422 with kube-apiserver's wording.
std::variant<Json, ApiResponse> patched(const ResourceType& type, const ApiRequest& request,
                                        const Json& object);
inline constexpr std::string_view kApplyType = "application/apply-patch+yaml";
std::variant<Json, ApiResponse> applied(Write& write, const ApiRequest& request, const Json* live);

}  // namespace lockstep::local
