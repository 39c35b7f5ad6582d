// Subresources of Api with objects of their own: scale of custom types, eviction of pods.
#include <algorithm>
#include <string>
#include <vector>

#include "local/store/api.h"
#include "local/store/event_view.h"
#include "local/store/object_rules.h"
#include "local/store/write.h"

namespace lockstep::local {
namespace {

constexpr int64_t kReplicasMax = 2147483647;

// Splits ".spec.nodes" into "spec" and "nodes". The path was checked when the type was defined.
std::vector<std::string> names_of(const std::string& path) {
  std::vector<std::string> names;
  for (size_t from = 1; from < path.size();) {
    const size_t to = std::min(path.find('.', from), path.size());
    names.push_back(path.substr(from, to - from));
    from = to + 1;
  }
  return names;
}

// Returns the value at the path, or null. Paths lead through objects only: digits are a member's
// name, not an index.
Json value_at(const Json& object, const std::string& path) {
  const Json* at = &object;
  for (const std::string& name : names_of(path)) {
    at = find_member(*at, name);
    if (at == nullptr) return Json();
  }
  return path.empty() ? Json() : *at;
}

// Returns false if the path leads through something other than objects.
bool set_replicas(Json& object, const std::string& path, int64_t count) {
  Json* at = &object;
  for (const std::string& name : names_of(path)) {
    if (at->is_null()) *at = Json::object();
    if (!at->is_object()) return false;
    at = &(*at)[name];
  }
  *at = count;
  return true;
}

int64_t replicas_at(const Json& object, const std::string& path) {
  Json value = value_at(object, path);
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

// Source: Kubernetes, autoscaling/v1 Scale.
Json scale_of(const ResourceType& type, const Json& object) {
  Json metadata;
  for (const char* key : {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"})
    if (metadata_of(object).contains(key)) metadata[key] = metadata_of(object)[key];
  Json status = {{"replicas", replicas_at(object, type.scale->status_replicas)}};
  Json selector = value_at(object, type.scale->label_selector);
  if (selector.is_string()) status["selector"] = std::move(selector);
  return {{"kind", "Scale"},
          {"apiVersion", "autoscaling/v1"},
          {"metadata", std::move(metadata)},
          {"spec", {{"replicas", replicas_at(object, type.scale->spec_replicas)}}},
          {"status", std::move(status)}};
}

ResourceType scale_type() {
  return {.group = "autoscaling", .version = "v1", .plural = "scales", .kind = "Scale"};
}

}  // namespace

ApiResponse Api::get_scale(const ApiPath& path) {
  ObjectPtr object = storage_.get(path.type->storage(), {path.namespace_, path.name});
  if (object == nullptr) return object_not_found(*path.type, path.name);
  return {200, scale_of(*path.type, *object)};
}

ApiResponse Api::write_scale(Write& write, const ApiRequest& request) {
  const ApiPath& path = write.path;
  ObjectPtr old = storage_.get(path.type->storage(), {path.namespace_, path.name});
  if (old == nullptr) return object_not_found(*path.type, path.name);
  Json before = scale_of(*path.type, *old);
  std::variant<Json, ApiResponse> given =
      request.method == "PUT" ? parse_body(request) : patched(scale_type(), request, before);
  if (auto* error = std::get_if<ApiResponse>(&given)) return *error;
  Json& scale = std::get<Json>(given);
  if (auto error = check_kind(scale_type(), scale)) return *std::move(error);
  if (std::string name = string_or(scale["metadata"], "name", ""); name != path.name)
    return bad_request("the name of the object (" + name +
                       ") does not match the name on the URL (" + path.name + ")");
  const Json* spec = find_member(scale, "spec");
  const Json* replicas = spec == nullptr ? nullptr : find_member(*spec, "replicas");
  if (replicas != nullptr && !replicas->is_number_integer())
    return bad_request("spec.replicas: expected a whole number");
  int64_t count = replicas == nullptr ? 0 : replicas->get<int64_t>();
  if (count < 0 || count > kReplicasMax)
    return invalid_object(
        scale_type(), path.name,
        {{"FieldValueInvalid",
          "Invalid value: " + std::to_string(count) + ": must be greater than or equal to 0",
          "spec.replicas"}});
  Json object = to_view(*path.type, *old);
  if (!set_replicas(object, path.type->scale->spec_replicas, count))
    return bad_request(path.type->scale->spec_replicas + ": expected its parent to be an object");
  Json& metadata = object["metadata"];
  for (const char* key : {"resourceVersion", "uid"}) {
    if (std::string asked = string_or(scale["metadata"], key, ""); !asked.empty())
      metadata[key] = asked;
  }
  ApiPath main = path;  // write the object itself
  main.subresource = "";
  Write of_object{
      .path = main, .manager = write.manager, .dry_run = write.dry_run, .now = write.now};
  ApiResponse stored = replace(of_object, *old, std::move(object));
  if (!stored.ok()) return stored;
  return {200, scale_of(*path.type, stored.body)};
}

ApiResponse Api::evict(Write& write, const ApiRequest& request) {
  const ApiPath& path = write.path;
  auto parsed = parse_body(request);
  if (auto* error = std::get_if<ApiResponse>(&parsed)) return *error;
  const Json& eviction = std::get<Json>(parsed);
  if (!eviction.is_object()) return bad_request("the body is not an object");
  if (string_or(eviction, "kind", "Eviction") != "Eviction")
    return bad_request("expected an Eviction of policy/v1 or policy/v1beta1");
  const Json* given = find_member(eviction, "deleteOptions");
  ApiRequest deletion = request;
  deletion.content_type = "application/json";
  deletion.body = given == nullptr || given->is_null() ? "" : dump_json(*given);
  ApiPath pod = path;
  pod.subresource = "";
  ApiResponse deleted = remove(pod, deletion);
  if (!deleted.ok()) return deleted;
  return {201, {{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Success"}, {"code", 201}}};
}

}  // namespace lockstep::local
