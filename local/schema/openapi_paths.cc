#include "local/schema/openapi_paths.h"

namespace lockstep::local {
namespace {

struct Parameter {
  std::string_view name, type, words;
};

constexpr Parameter kDryRun = {"dryRun", "string",
                               "All: processes the request without storing the result."};
constexpr Parameter kFieldManager = {"fieldManager", "string",
                                     "The name of the manager that owns the changed fields."};
constexpr Parameter kFieldValidation = {
    "fieldValidation", "string",
    "How unknown and duplicate fields are handled: Ignore, Warn or Strict."};
constexpr Parameter kForce = {"force", "boolean",
                              "Takes over fields that other managers own; only for apply patches."};
constexpr Parameter kWatch = {"watch", "boolean", "Answers with a stream of changes."};
constexpr Parameter kLabelSelector = {"labelSelector", "string", "Selects objects by labels."};
constexpr Parameter kFieldSelector = {"fieldSelector", "string", "Selects objects by fields."};
constexpr Parameter kLimit = {"limit", "integer", "Maximum number of objects in a page."};
constexpr Parameter kContinue = {"continue", "string", "The token from the previous page."};
constexpr Parameter kVersion = {"resourceVersion", "string", "The requested version of the data."};
constexpr Parameter kPropagation = {
    "propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."};
constexpr Parameter kGrace = {"gracePeriodSeconds", "integer", "Time until the object is killed."};

Json parameter(OpenApiVersion version, const Parameter& from, std::string_view in) {
  Json result = {{"name", from.name}, {"in", in}, {"description", from.words}};
  if (in == "path") result["required"] = true;
  if (version == OpenApiVersion::kV2) {
    result["type"] = from.type;
  } else {
    result["schema"] = {{"type", from.type}};
  }
  return result;
}

struct Operation {
  std::string_view method, action;
  std::vector<Parameter> parameters;
  bool has_body = false;
};

const std::vector<Operation>& collection_operations() {
  static const std::vector<Operation> operations = {
      {"get", "list", {kWatch, kLabelSelector, kFieldSelector, kLimit, kContinue, kVersion}},
      {"post", "post", {kDryRun, kFieldManager, kFieldValidation}, true},
      {"delete",
       "deletecollection",
       {kDryRun, kLabelSelector, kFieldSelector, kPropagation, kGrace}}};
  return operations;
}

const std::vector<Operation>& object_operations() {
  static const std::vector<Operation> operations = {
      {"get", "get", {kVersion}},
      {"put", "put", {kDryRun, kFieldManager, kFieldValidation}, true},
      {"patch", "patch", {kDryRun, kFieldManager, kFieldValidation, kForce}, true},
      {"delete", "delete", {kDryRun, kPropagation, kGrace}}};
  return operations;
}

// Returns the `content` of a request or response.
Json content(OpenApiVersion version, const std::string& definition) {
  return {{"application/json", {{"schema", reference_to(version, definition)}}}};
}

constexpr std::string_view kPatchTypes[] = {
    "application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"};

void add_body(OpenApiVersion version, const Operation& from, const std::string& definition,
              Json& operation) {
  const bool is_patch = from.method == "patch";
  const Json patch = {{"type", "object"}, {"description", "The patch."}};
  if (version == OpenApiVersion::kV2) {
    operation["parameters"].push_back(
        {{"name", "body"},
         {"in", "body"},
         {"required", true},
         {"schema", is_patch ? patch : reference_to(version, definition)}});
    if (is_patch) operation["consumes"] = kPatchTypes;
    return;
  }
  Json body = content(version, definition);
  if (is_patch) {
    body = Json::object();
    for (const std::string_view type : kPatchTypes) {
      body[std::string(type)] = {{"schema", patch}};
    }
  }
  operation["requestBody"] = {{"required", true}, {"content", std::move(body)}};
}

Json operation_of(OpenApiVersion version, const OpenApiResource& resource, const Operation& from,
                  const std::string& definition, const std::string& id) {
  Json operation = {{"operationId", id},
                    {"x-kubernetes-action", from.action},
                    {"x-kubernetes-group-version-kind",
                     group_version_kind(resource.group, resource.version, resource.kind)}};
  operation["parameters"] = Json::array();
  for (const Parameter& each : from.parameters) {
    operation["parameters"].push_back(parameter(version, each, "query"));
  }
  if (from.has_body) add_body(version, from, definition, operation);
  const std::string answer = from.action == "list" ? definition + "List" : definition;
  Json response = {{"description", "OK"}};
  if (version == OpenApiVersion::kV2) {
    response["schema"] = reference_to(version, answer);
    operation["produces"] = {"application/json"};
  } else {
    response["content"] = content(version, answer);
  }
  operation["responses"] = {{"200", std::move(response)}};
  return operation;
}

// Converts "lockstep.dev/trainingjobs/status" to "lockstepDevTrainingjobsStatus".
std::string camel_case(std::string_view text) {
  std::string result;
  bool begins = false;
  for (const char c : text) {
    const bool is_letter =
        (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
    if (is_letter) result += begins && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    begins = !is_letter;
  }
  return result;
}

}  // namespace

std::string group_path(const OpenApiResource& resource) {
  return resource.group.empty() ? "/api/" + resource.version
                                : "/apis/" + resource.group + "/" + resource.version;
}

void add_paths(OpenApiVersion version, const OpenApiResource& resource,
               const std::string& definition, Json& paths) {
  const Parameter name = {"name", "string", "The object's name."};
  const Parameter space = {"namespace", "string", "The object's namespace."};
  const auto add = [&](const std::string& path, const std::vector<Operation>& operations,
                       std::string_view actions) {
    Json item = Json::object();
    for (const Operation& each : operations) {
      if (actions.find(each.method) == std::string_view::npos) continue;
      const std::string id = camel_case(std::string(each.action) + path);
      item[std::string(each.method)] = operation_of(version, resource, each, definition, id);
    }
    item["parameters"] = Json::array();
    if (path.find("{name}") != std::string::npos) {
      item["parameters"].push_back(parameter(version, name, "path"));
    }
    if (path.find("{namespace}") != std::string::npos) {
      item["parameters"].push_back(parameter(version, space, "path"));
    }
    paths[path] = std::move(item);
  };
  const std::string root = group_path(resource);
  const std::string collection =
      root + (resource.namespaced ? "/namespaces/{namespace}/" : "/") + resource.plural;
  add(collection, collection_operations(), "get post delete");
  if (resource.namespaced) add(root + "/" + resource.plural, collection_operations(), "get");
  add(collection + "/{name}", object_operations(), "get put patch delete");
  for (const std::string& subresource : resource.subresources) {
    add(collection + "/{name}/" + subresource, object_operations(), "get put patch");
  }
}

}  // namespace lockstep::local
