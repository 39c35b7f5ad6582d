#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "local/store/resources.h"

namespace lockstep::local {

// A response of the server: an HTTP code and usually a JSON body.
struct ApiResponse {
  int code = 200;
  Json body;
  std::vector<std::string> warnings = {};  // for the user: one Warning header each
  // If raw_type is not empty, these bytes are sent with that media type instead of `body`.
  std::string raw_type = {};
  std::string raw = {};

  bool ok() const { return code < 300; }
};

// Responses with metav1.Status objects, worded as by kube-apiserver.
// Source: k8s.io/apimachinery, pkg/api/errors/errors.go.
struct StatusCause {
  std::string reason;  // FieldValueInvalid, FieldValueRequired, ...
  std::string message;
  std::string field;
};

// Returns the cause for a field whose value violates `rule`.
StatusCause wrong_field(const Json& value, std::string_view rule, std::string field);

ApiResponse failure(int code, std::string_view reason, std::string message);
ApiResponse bad_request(std::string message);
// 404: the path or the kind of object is unknown.
ApiResponse unknown_path();
ApiResponse method_not_allowed();
// 415. `accepted` lists the media types, separated by commas.
ApiResponse unsupported_media_type(std::string_view accepted);
// 406: the server supports none of the formats that the client accepts.
ApiResponse not_acceptable();
ApiResponse object_not_found(const ResourceType& type, std::string_view name);
ApiResponse already_exists(const ResourceType& type, std::string_view name);
// 403: `pods "a" is forbidden: ...`.
ApiResponse forbidden(const ResourceType& type, std::string_view name, std::string_view why);
// 409: the resourceVersion or the UID is not the expected one.
ApiResponse write_conflict(const ResourceType& type, std::string_view name, std::string message);
ApiResponse invalid_object(const ResourceType& type, std::string_view name,
                           const std::vector<StatusCause>& causes);
// 410: that version is no longer kept.
ApiResponse expired(std::string message);
// 504: that version does not exist yet.
ApiResponse version_too_large(int64_t asked, int64_t current);
ApiResponse unauthorized();
ApiResponse too_large(size_t bytes_max);
ApiResponse too_many(std::string message);
ApiResponse success(const ResourceType& type, std::string_view name, std::string_view uid);

}  // namespace lockstep::local
