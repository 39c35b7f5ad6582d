#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "local/store/resources.h"

namespace lockstep::local {

// What the server answers: an HTTP code and, as a rule, a JSON body.
struct ApiResponse {
  int code = 200;
  Json body;
  std::vector<std::string> warnings = {};  // for the user: one Warning header each
  // Where raw_type is not empty: the media type and the bytes that are sent instead of `body`.
  std::string raw_type = {};
  std::string raw = {};

  bool ok() const { return code < 300; }
};

// metav1.Status objects, as kube-apiserver words them.
// Source: k8s.io/apimachinery, pkg/api/errors/errors.go.
struct StatusCause {
  std::string reason;  // FieldValueInvalid, FieldValueRequired, ...
  std::string message;
  std::string field;
};

// A field whose value is against `rule`.
StatusCause wrong_field(const Json& value, std::string_view rule, std::string field);

ApiResponse failure(int code, std::string_view reason, std::string message);
ApiResponse bad_request(std::string message);
// The path, or the sort of object, is unknown.
ApiResponse unknown_path();
ApiResponse method_not_allowed();
// `accepted`: the media types, with commas.
ApiResponse unsupported_media_type(std::string_view accepted);
// None of the kinds of answer that the client takes can be given.
ApiResponse not_acceptable();
ApiResponse object_not_found(const ResourceType& type, std::string_view name);
ApiResponse already_exists(const ResourceType& type, std::string_view name);
// 403: `pods "a" is forbidden: ...`.
ApiResponse forbidden(const ResourceType& type, std::string_view name, std::string_view why);
// The resourceVersion or the UID is not the one that was expected.
ApiResponse write_conflict(const ResourceType& type, std::string_view name, std::string message);
ApiResponse invalid_object(const ResourceType& type, std::string_view name,
                           const std::vector<StatusCause>& causes);
// 410: that version is no longer kept.
ApiResponse expired(std::string message);
// 504: a version that is still to come.
ApiResponse version_too_large(int64_t asked, int64_t current);
ApiResponse unauthorized();
ApiResponse too_large(size_t bytes_max);
ApiResponse too_many(std::string message);
ApiResponse success(const ResourceType& type, std::string_view name, std::string_view uid);

}  // namespace lockstep::local
