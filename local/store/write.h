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

// What the server does about fields that a schema does not know.
enum class FieldValidation { kIgnore, kWarn, kStrict };

// One create, update or patch on its way through the server: what its request says beside the
// object. Source: Kubernetes, CreateOptions, UpdateOptions and PatchOptions of meta/v1.
struct Write {
  const ApiPath& path;
  std::string manager;
  bool dry_run = false;
  bool force = false;
  FieldValidation validation = FieldValidation::kWarn;
  WallTime now;
  bool applied = false;  // managedFields are those of a server-side apply already
  std::vector<std::string> warnings = {};
};

// 422: what was asked for is not "All".
ApiResponse wrong_dry_run(const std::string& method, const std::string& value);

// 422 for options that are none.
std::variant<Write, ApiResponse> begin_write(const ApiPath& path, const ApiRequest& request,
                                             WallTime now);

// The media type of the body, without its parameters.
std::string media_type(const ApiRequest& request);
// The body as JSON, whatever of JSON, YAML and protobuf it is; errors as the server words them.
std::variant<Json, ApiResponse> parse_body(const ApiRequest& request);
// Whether the body is an object in an encoding that this type is read from. Custom types have no
// protobuf.
bool is_document(const ApiRequest& request, const ResourceType& type);

// Takes what the schema of a custom type does not know out of `object` (Strict: 400; Warn: a
// warning each), and fills in its defaults.
std::optional<ApiResponse> fit_to_schema(Write& write, Json& object);
// 422 with a cause for each violation of a custom type's schema.
std::optional<ApiResponse> check_schema(const Write& write, const Json& object);

// Writes metadata.managedFields for an update or a patch; `live` is null where the object is new.
// Kinds that programs alone write (pods, nodes, events, leases) have none, unless they are applied.
void record_fields(const Write& write, const Json* live, Json& object);

// What a patch that is not server-side apply makes of the object; 415 for a type that has no such
// patches, 400, 413 and 422 as kube-apiserver words them.
std::variant<Json, ApiResponse> patched(const ResourceType& type, const ApiRequest& request,
                                        const Json& object);
inline constexpr std::string_view kApplyType = "application/apply-patch+yaml";
std::variant<Json, ApiResponse> applied(Write& write, const ApiRequest& request, const Json* live);

}  // namespace lockstep::local
