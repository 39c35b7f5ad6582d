#include "local/store/status_error.h"

namespace lockstep::local {
namespace {

Json status(std::string_view outcome) {
  return {
      {"kind", "Status"}, {"apiVersion", "v1"}, {"metadata", Json::object()}, {"status", outcome}};
}

ApiResponse about(const ResourceType& type, std::string_view name, ApiResponse response) {
  Json details = {{"name", name}, {"kind", type.plural}};
  if (!type.group.empty()) details["group"] = type.group;
  response.body["details"] = std::move(details);
  return response;
}

std::string quoted(const ResourceType& type, std::string_view name) {
  return type.qualified_plural() + " \"" + std::string(name) + "\"";
}

}  // namespace

StatusCause wrong_field(const Json& value, std::string_view rule, std::string field) {
  return {"FieldValueInvalid", "Invalid value: " + dump_json(value) + ": " + std::string(rule),
          std::move(field)};
}

ApiResponse failure(int code, std::string_view reason, std::string message) {
  Json body = status("Failure");
  body["message"] = std::move(message);
  body["reason"] = reason;
  body["code"] = code;
  return {code, std::move(body)};
}

ApiResponse bad_request(std::string message) {
  return failure(400, "BadRequest", std::move(message));
}

ApiResponse unknown_path() {
  ApiResponse response =
      failure(404, "NotFound", "the server could not find the requested resource");
  response.body["details"] = Json::object();  // kubectl debug reads it
  return response;
}

ApiResponse method_not_allowed() {
  return failure(405, "MethodNotAllowed",
                 "the server does not allow this method on the requested resource");
}

ApiResponse unsupported_media_type(std::string_view accepted) {
  return failure(415, "UnsupportedMediaType",
                 "the body of the request was in an unknown format - accepted media types "
                 "include: " +
                     std::string(accepted));
}

ApiResponse not_acceptable() {
  return failure(406, "NotAcceptable",
                 "only the following media types are accepted: application/json");
}

ApiResponse object_not_found(const ResourceType& type, std::string_view name) {
  return about(type, name, failure(404, "NotFound", quoted(type, name) + " not found"));
}

ApiResponse already_exists(const ResourceType& type, std::string_view name) {
  return about(type, name, failure(409, "AlreadyExists", quoted(type, name) + " already exists"));
}

ApiResponse forbidden(const ResourceType& type, std::string_view name, std::string_view why) {
  return about(
      type, name,
      failure(403, "Forbidden", quoted(type, name) + " is forbidden: " + std::string(why)));
}

ApiResponse write_conflict(const ResourceType& type, std::string_view name, std::string message) {
  return about(type, name,
               failure(409, "Conflict",
                       "Operation cannot be fulfilled on " + quoted(type, name) + ": " + message));
}

ApiResponse invalid_object(const ResourceType& type, std::string_view name,
                           const std::vector<StatusCause>& causes) {
  std::string words;
  Json list = Json::array();
  for (const StatusCause& cause : causes) {
    words += (words.empty() ? "" : ", ") + cause.field + ": " + cause.message;
    list.push_back({{"reason", cause.reason}, {"message", cause.message}, {"field", cause.field}});
  }
  std::string kind = type.kind;
  if (!type.group.empty()) kind += "." + type.group;
  ApiResponse response =
      failure(422, "Invalid", kind + " \"" + std::string(name) + "\" is invalid: " + words);
  response = about(type, name, std::move(response));
  response.body["details"]["kind"] = type.kind;
  response.body["details"]["causes"] = std::move(list);
  return response;
}

ApiResponse expired(std::string message) {
  return failure(410, "Expired", std::move(message));
}

ApiResponse version_too_large(int64_t asked, int64_t current) {
  ApiResponse response = failure(504, "Timeout",
                                 "Timeout: Too large resource version: " + std::to_string(asked) +
                                     ", current: " + std::to_string(current));
  response.body["details"] = {
      {"causes",
       {{{"reason", "ResourceVersionTooLarge"}, {"message", "Too large resource version"}}}},
      {"retryAfterSeconds", 1}};
  return response;
}

ApiResponse unauthorized() {
  return failure(401, "Unauthorized", "Unauthorized");
}

ApiResponse too_large(size_t bytes_max) {
  return failure(413, "RequestEntityTooLarge",
                 "Request entity too large: limit is " + std::to_string(bytes_max));
}

ApiResponse too_many(std::string message) {
  ApiResponse response = failure(429, "TooManyRequests", std::move(message));
  response.body["details"] = {{"retryAfterSeconds", 1}};
  return response;
}

ApiResponse success(const ResourceType& type, std::string_view name, std::string_view uid) {
  ApiResponse response = about(type, name, {200, status("Success")});
  response.body["details"]["uid"] = uid;
  return response;
}

}  // namespace lockstep::local
