#include "local/store/write.h"

#include <algorithm>

#include "common/api/yaml.h"
#include "local/patch/patch.h"
#include "local/protobuf/protobuf.h"
#include "local/store/storage.h"

namespace lockstep::local {
namespace {

constexpr size_t kBodyBytesMax = 3u << 20;
constexpr size_t kManagerBytesMax = 128;
constexpr size_t kWarningsMax = 20;
constexpr std::string_view kJsonPatch = "application/json-patch+json";
constexpr std::string_view kMergePatch = "application/merge-patch+json";
constexpr std::string_view kStrategicPatch = "application/strategic-merge-patch+json";

std::string_view options_kind(const std::string& method) {
  if (method == "POST") return "CreateOptions";
  if (method == "DELETE") return "DeleteOptions";
  return method == "PUT" ? "UpdateOptions" : "PatchOptions";
}

ApiResponse bad_option(const std::string& method, StatusCause cause) {
  static const ResourceType kMeta{.group = "meta.k8s.io"};
  ResourceType options = kMeta;
  options.kind = options_kind(method);
  return invalid_object(options, "", {std::move(cause)});
}

std::string first_word(const std::string& user_agent) {
  return user_agent.substr(0, std::min(user_agent.find_first_of("/ "), kManagerBytesMax));
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c != 0x7f; });
}

ApiResponse to_response(const PatchError& error) {
  if (error.code == 400) return bad_request(error.message);
  if (error.code == 413) return failure(413, "RequestEntityTooLarge", error.message);
  ApiResponse response =
      failure(422, "Invalid", "the server rejected our request due to an error in our request");
  response.body["details"] = {
      {"causes", {{{"reason", "UnexpectedServerResponse"}, {"message", error.message}}}}};
  return response;
}

ApiResponse patch_type_refused(const ResourceType& type) {
  std::string accepted = std::string(kJsonPatch) + ", " + std::string(kMergePatch);
  if (!type.custom) accepted += ", " + std::string(kStrategicPatch);
  return unsupported_media_type(accepted + ", " + std::string(kApplyType));
}

// Checks the intent of an apply against its path. Drops the status on the main resource, and
// everything but the status on the status subresource.
std::optional<ApiResponse> trim_intent(const Write& write, Json& intent) {
  if (!intent.is_object()) return bad_request("expected an apply patch that is an object");
  const ApiPath& path = write.path;
  for (const auto& [key, expected] : {std::pair<const char*, std::string>{"kind", path.type->kind},
                                      {"apiVersion", path.type->api_version()}}) {
    const Json* given = find_member(intent, key);
    if (given == nullptr || *given != expected)
      return bad_request(std::string(key) + " in the body (" +
                         (given == nullptr ? "none" : dump_json(*given)) +
                         ") does not match the expected \"" + expected + "\"");
  }
  Json& metadata = intent["metadata"];
  if (metadata.is_null()) metadata = Json::object();
  if (!metadata.is_object()) return bad_request("metadata: expected an object");
  if (!metadata.contains("name")) metadata["name"] = path.name;
  if (metadata["name"] != path.name)
    return bad_request("the name of the object (" + dump_json(metadata["name"]) +
                       ") does not match the name on the URL (" + path.name + ")");
  if (path.type->namespaced && !metadata.contains("namespace"))
    metadata["namespace"] = path.namespace_;
  if (!path.type->has_status) return std::nullopt;
  if (path.subresource.empty()) {
    intent.erase("status");
  } else {
    for (auto at = intent.begin(); at != intent.end();) {
      bool kept = at.key() == "apiVersion" || at.key() == "kind" || at.key() == "metadata" ||
                  at.key() == "status";
      at = kept ? std::next(at) : intent.erase(at);
    }
  }
  return std::nullopt;
}

ApiResponse conflicting(const std::vector<ApplyConflict>& conflicts) {
  ApiResponse response = failure(409, "Conflict", conflict_message(conflicts));
  Json causes = Json::array();
  for (const ApplyConflict& conflict : conflicts)
    causes.push_back({{"reason", "FieldManagerConflict"},
                      {"message", conflict.message},
                      {"field", conflict.field}});
  response.body["details"] = {{"causes", std::move(causes)}};
  return response;
}

std::shared_ptr<const SchemaNode> schema_of(const ResourceType& type) {
  return type.schema != nullptr ? type.schema : built_in_schema(type.api_version(), type.kind);
}

}  // namespace

std::string media_type(const ApiRequest& request) {
  std::string type = request.content_type.substr(0, request.content_type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  return type;
}

std::variant<Json, ApiResponse> parse_body(const ApiRequest& request) {
  if (request.body.size() > kBodyBytesMax) return too_large(kBodyBytesMax);
  std::string type = media_type(request);
  bool yaml = type == "application/yaml" || (type == kApplyType && !request.body.starts_with('{'));
  Result<Json> body = type == kProtobufType ? json_from_protobuf(request.body)
                      : yaml                ? json_from_yaml(request.body)
                                            : parse_json(request.body);
  if (!body.ok()) return bad_request("the body can't be read: " + body.error().message);
  return *std::move(body);
}

bool is_document(const ApiRequest& request, const ResourceType& type) {
  std::string media = media_type(request);
  if (media == kProtobufType) return !type.custom;
  return media.empty() || media == "application/json" || media == "application/yaml";
}

ApiResponse wrong_dry_run(const std::string& method, const std::string& value) {
  return bad_option(
      method, {"FieldValueNotSupported",
               "Unsupported value: " + dump_json(value) + ": supported values: \"All\"", "dryRun"});
}

std::variant<Write, ApiResponse> begin_write(const ApiPath& path, const ApiRequest& request,
                                             WallTime now) {
  Write write{.path = path, .now = now};
  const std::string& method = request.method;
  bool is_apply = method == "PATCH" && media_type(request) == kApplyType;
  if (std::string dry_run = path.parameter("dryRun"); !dry_run.empty()) {
    if (dry_run != "All") return wrong_dry_run(method, dry_run);
    write.dry_run = true;
  }
  write.manager = path.parameter("fieldManager");
  if (write.manager.size() > kManagerBytesMax || !is_printable(write.manager))
    return bad_option(method, {"FieldValueInvalid",
                               "Invalid value: " + dump_json(write.manager) +
                                   ": should be printable and at most 128 characters long",
                               "fieldManager"});
  if (write.manager.empty() && is_apply)
    return bad_option(method, {"FieldValueRequired", "Required value: is required for apply patch",
                               "fieldManager"});
  if (write.manager.empty()) write.manager = first_word(request.user_agent);
  if (write.manager.empty()) write.manager = "unknown";
  write.force = path.flag("force");
  if (write.force && !is_apply && method == "PATCH")
    return bad_option(method, {"FieldValueForbidden",
                               "Forbidden: may not be specified for non-apply patch", "force"});
  std::string validation = path.parameter("fieldValidation");
  if (validation == "Strict") write.validation = FieldValidation::kStrict;
  if (validation == "Ignore") write.validation = FieldValidation::kIgnore;
  if (!validation.empty() && validation != "Strict" && validation != "Ignore" &&
      validation != "Warn")
    return bad_option(method, {"FieldValueNotSupported",
                               "Unsupported value: " + dump_json(validation) +
                                   ": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
                               "fieldValidation"});
  return write;
}

std::optional<ApiResponse> prune_and_default(Write& write, Json& object) {
  const ResourceType& type = *write.path.type;
  if (!type.custom || type.schema == nullptr || !object.is_object()) return std::nullopt;
  std::vector<std::string> unknown = prune(*type.schema, object);
  if (!unknown.empty() && write.validation == FieldValidation::kStrict) {
    std::string words;
    for (const std::string& field : unknown)
      words += (words.empty() ? "" : ", ") + ("unknown field \"" + field + "\"");
    return bad_request(type.kind + " in version \"" + type.version + "\" cannot be handled as a " +
                       type.kind + ": strict decoding error: " + words);
  }
  if (write.validation == FieldValidation::kWarn) {
    for (const std::string& field : unknown) {
      if (write.warnings.size() < kWarningsMax)
        write.warnings.push_back("unknown field \"" + field + "\"");
    }
  }
  apply_defaults(*type.schema, object);
  return std::nullopt;
}

std::optional<ApiResponse> check_schema(const Write& write, const Json& object) {
  const ResourceType& type = *write.path.type;
  if (!type.custom || type.schema == nullptr) return std::nullopt;
  std::vector<StatusCause> causes;
  for (const SchemaProblem& problem : validate(*type.schema, object))
    causes.push_back({problem.reason, problem.message, problem.field});
  // A schema may restrict name and generateName, and nothing else in metadata.
  if (const SchemaNode* metadata = type.schema->member("metadata")) {
    for (const SchemaProblem& problem : validate(*metadata, metadata_of(object)))
      causes.push_back({problem.reason, problem.message, "metadata." + problem.field});
  }
  if (causes.empty()) return std::nullopt;
  return invalid_object(type, string_or(metadata_of(object), "name", ""), causes);
}

void record_fields(const Write& write, const Json* live, Json& object) {
  const ResourceType& type = write.path.type->storage();
  if (write.applied) return;
  Json& metadata = object["metadata"];
  if (is_core(type, "pods") || is_core(type, "nodes") || is_core(type, "events") ||
      type.plural == "leases") {
    const Json* kept = live == nullptr ? nullptr : find_member(metadata_of(*live), "managedFields");
    if (kept == nullptr)
      metadata.erase("managedFields");
    else
      metadata["managedFields"] = *kept;
    return;
  }
  record_update(*schema_of(*write.path.type), live, object,
                {.manager = write.manager,
                 .api_version = write.path.type->api_version(),
                 .subresource = write.path.subresource,
                 .now = write.now});
}

std::variant<Json, ApiResponse> patched(const ResourceType& type, const ApiRequest& request,
                                        const Json& object) {
  std::string media = media_type(request);
  bool strategic = media == kStrategicPatch;
  if ((media != kJsonPatch && media != kMergePatch && !strategic) || (strategic && type.custom))
    return patch_type_refused(type);
  auto parsed = parse_body(request);
  if (auto* error = std::get_if<ApiResponse>(&parsed)) return *error;
  const Json& patch = std::get<Json>(parsed);
  PatchResult result = media == kJsonPatch ? apply_json_patch(object, patch)
                       : media == kMergePatch
                           ? apply_merge_patch(object, patch)
                           : apply_strategic_patch(*schema_of(type), object, patch);
  if (auto* error = std::get_if<PatchError>(&result)) return to_response(*error);
  return std::get<Json>(std::move(result));
}

std::variant<Json, ApiResponse> applied(Write& write, const ApiRequest& request, const Json* live) {
  auto parsed = parse_body(request);
  if (auto* error = std::get_if<ApiResponse>(&parsed)) return *error;
  Json& intent = std::get<Json>(parsed);
  if (auto error = trim_intent(write, intent)) return *error;
  ApplyResult result = apply_intent(*schema_of(*write.path.type), live, intent,
                                    {.manager = write.manager,
                                     .api_version = write.path.type->api_version(),
                                     .subresource = write.path.subresource,
                                     .now = write.now},
                                    write.force);
  if (auto* error = std::get_if<PatchError>(&result)) return to_response(*error);
  if (auto* conflicts = std::get_if<std::vector<ApplyConflict>>(&result))
    return conflicting(*conflicts);
  write.applied = true;
  Json object = std::get<Json>(std::move(result));
  // Keep the preconditions of the intent.
  for (const char* key : {"resourceVersion", "uid"}) {
    if (std::string asked = string_or(intent["metadata"], key, ""); !asked.empty())
      object["metadata"][key] = asked;
  }
  return object;
}

}  // namespace lockstep::local
