// The creates, updates and patches of Api.
#include "local/store/api.h"
#include "local/store/crd.h"
#include "local/store/event_rules.h"
#include "local/store/event_view.h"
#include "local/store/object_rules.h"
#include "local/store/training_job_check.h"
#include "local/store/write.h"

namespace lockstep::local {
namespace {

ObjectKey key_of(const ApiPath& path) {
  return {path.namespace_, path.name};
}

}  // namespace

ApiResponse Api::write(const ApiPath& path, const ApiRequest& request, Writer writer) {
  auto begun = begin_write(path, request, clock_.wall_now());
  if (auto* error = std::get_if<ApiResponse>(&begun)) return *error;
  Write& write = std::get<Write>(begun);
  ApiResponse response = (this->*writer)(write, request);
  response.warnings = std::move(write.warnings);
  return response;
}

std::optional<ApiResponse> Api::check_namespace(const ApiPath& path, std::string_view name) const {
  const ResourceType& namespaces = *types_.find("", "v1", "namespaces");
  ObjectPtr found = storage_.get(namespaces, {"", path.namespace_});
  if (found == nullptr) return object_not_found(namespaces, path.namespace_);
  if (!metadata_of(*found).contains("deletionTimestamp")) return std::nullopt;
  ApiResponse refused = forbidden(*path.type, name,
                                  "unable to create new content in namespace " + path.namespace_ +
                                      " because it is being terminated");
  refused.body["details"]["causes"] = {
      {{"reason", "NamespaceTerminating"},
       {"message", "namespace " + path.namespace_ + " is being terminated"},
       {"field", "metadata.namespace"}}};
  return refused;
}

ApiResponse Api::create(Write& write, const ApiRequest& request) {
  const ResourceType& type = *write.path.type;
  if (!is_document(request, type)) return unsupported_media_type("application/json");
  if (type.namespaced && write.path.namespace_.empty()) return method_not_allowed();
  auto parsed = parse_body(request);
  if (auto* error = std::get_if<ApiResponse>(&parsed)) return *error;
  return insert(write, std::get<Json>(std::move(parsed)));
}

ApiResponse Api::insert(Write& write, Json object) {
  const ApiPath& path = write.path;
  const ResourceType& type = path.type->storage();
  if (auto error = check_kind(*path.type, object)) return *error;
  if (auto error = prune_and_default(write, object)) return *error;
  object = from_view(*path.type, std::move(object));
  CreateContext context{path.namespace_, new_uid(), new_suffix(), clock_.wall_now(),
                        random_.next_u64()};
  if (auto error = prepare_create(type, context, object)) return *error;
  if (is_core(type, "events")) {
    if (auto error = check_new_event(*path.type, object)) return *error;
  }
  ObjectKey key{type.namespaced ? path.namespace_ : "", object["metadata"]["name"]};
  if (auto error = check_schema(write, object)) return *error;
  if (auto error = check_training_job(write, nullptr, object)) return *error;
  if (type.namespaced) {
    if (auto error = check_namespace(path, key.name)) return *error;
  }
  if (storage_.get(type, key) != nullptr) return already_exists(*path.type, key.name);
  if (is_crd(type) && types_.custom_count() >= kCustomTypesMax)
    return failure(507, "InsufficientStorage",
                   "expected at most " + std::to_string(kCustomTypesMax) +
                       " customresourcedefinitions; delete some");
  record_fields(write, nullptr, object);
  return store(write, key, std::move(object), 201);
}

ApiResponse Api::store(const Write& write, const ObjectKey& key, Json object, int code) {
  const ApiPath& path = write.path;
  const ResourceType& type = path.type->storage();
  if (write.dry_run) return {code, to_view(*path.type, std::move(object))};
  if (Deletion::is_over(type, object)) {  // skip the intermediate state
    Deletion(storage_, types_, clock_.wall_now()).finish(type, key);
    return {code, to_view(*path.type, std::move(object))};
  }
  bool defines = is_crd(type) && accept_crd(types_, clock_.wall_now(), object);
  Result<ObjectPtr> stored = storage_.put(type, key, std::move(object));
  if (stored.ok() && defines) define_types(**stored);
  if (!stored.ok()) return failure(507, "InsufficientStorage", stored.error().message);
  ApiResponse response{code, to_view(*path.type, **stored)};
  Deletion(storage_, types_, clock_.wall_now()).reconcile_after_write(type, key);
  return response;
}

void Api::define_types(const Json& crd) {
  Result<std::vector<ResourceType>> defined = types_of_crd(crd);
  CHECK(defined.ok());  // checked before it was stored
  types_.define(string_or(metadata_of(crd), "name", ""), *std::move(defined),
                [&](const ResourceType& type) { storage_.forget(type); });
}

ApiResponse Api::bind(Write& write, const ApiRequest& request) {
  const ApiPath& path = write.path;
  ObjectPtr pod = storage_.get(*path.type, key_of(path));
  if (pod == nullptr) return object_not_found(*path.type, path.name);
  auto parsed = parse_body(request);
  if (auto* error = std::get_if<ApiResponse>(&parsed)) return *error;
  const Json* target = find_member(std::get<Json>(parsed), "target");
  std::string node = target == nullptr ? "" : string_or(*target, "name", "");
  if (node.empty()) return bad_request("target.name: expected the name of a node");
  const Json* spec = find_member(*pod, "spec");
  std::string bound = spec == nullptr ? "" : string_or(*spec, "nodeName", "");
  if (!bound.empty())
    return write_conflict(*path.type, path.name, "pod is already assigned to node " + bound);
  if (metadata_of(*pod).contains("deletionTimestamp"))
    return write_conflict(*path.type, path.name, "pod is being deleted");
  Json updated = *pod;
  updated["spec"]["nodeName"] = node;
  if (!updated["status"].is_object()) updated["status"] = Json::object();
  updated["status"]["conditions"] = {{{"type", "PodScheduled"},
                                      {"status", "True"},
                                      {"lastTransitionTime", rfc3339(clock_.wall_now())}}};
  ApiResponse stored = store(write, key_of(path), std::move(updated), 201);
  if (!stored.ok()) return stored;
  return {201, {{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Success"}, {"code", 201}}};
}

ApiResponse Api::replace(Write& write, const Json& old, Json object) {
  const ApiPath& path = write.path;
  const ResourceType& type = path.type->storage();
  if (auto error = check_kind(*path.type, object)) return *error;
  if (auto error = prune_and_default(write, object)) return *error;
  object = from_view(*path.type, std::move(object));
  UpdateContext context{old, key_of(path), path.subresource};
  if (auto error = prepare_update(type, context, object)) return *error;
  if (auto error = check_schema(write, object)) return *error;
  if (auto error = check_training_job(write, &old, object)) return *error;
  record_fields(write, &old, object);
  if (object == old) return {200, to_view(*path.type, std::move(object))};  // no new version
  return store(write, key_of(path), std::move(object), 200);
}

ApiResponse Api::update(Write& write, const ApiRequest& request) {
  const ResourceType& type = *write.path.type;
  if (!is_document(request, type)) return unsupported_media_type("application/json");
  auto parsed = parse_body(request);
  if (auto* error = std::get_if<ApiResponse>(&parsed)) return *error;
  ObjectPtr old = storage_.get(type.storage(), key_of(write.path));
  if (old == nullptr) return object_not_found(type, write.path.name);
  return replace(write, *old, std::get<Json>(std::move(parsed)));
}

ApiResponse Api::patch(Write& write, const ApiRequest& request) {
  const ResourceType& type = *write.path.type;
  ObjectPtr old = storage_.get(type.storage(), key_of(write.path));
  if (media_type(request) == kApplyType) return apply(write, request, old);
  if (old == nullptr) return object_not_found(type, write.path.name);
  auto changed = patched(type, request, to_view(type, *old));
  if (auto* error = std::get_if<ApiResponse>(&changed)) return *error;
  return replace(write, *old, std::get<Json>(std::move(changed)));
}

ApiResponse Api::apply(Write& write, const ApiRequest& request, const ObjectPtr& old) {
  const ResourceType& type = *write.path.type;
  if (old == nullptr && !write.path.subresource.empty())
    return object_not_found(type, write.path.name);
  std::optional<Json> live;
  if (old != nullptr) live = to_view(type, *old);
  auto made = applied(write, request, live ? &*live : nullptr);
  if (auto* error = std::get_if<ApiResponse>(&made)) return *error;
  Json& object = std::get<Json>(made);
  return old == nullptr ? insert(write, std::move(object))
                        : replace(write, *old, std::move(object));
}

}  // namespace lockstep::local
