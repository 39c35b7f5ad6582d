#include "local/store/object_rules.h"

#include <algorithm>

#include "local/store/built_in_rules.h"

namespace lockstep::local {
namespace {

constexpr std::string_view kNameRule =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character";

constexpr size_t kGeneratedNameMax = 63;

bool all_strings(const Json* values) {
  if (values == nullptr || values->is_null()) return true;
  return (values->is_object() || values->is_array()) &&
         std::all_of(values->begin(), values->end(),
                     [](const Json& value) { return value.is_string(); });
}

std::optional<ApiResponse> check_metadata_types(const Json& metadata) {
  for (const char* key : {"labels", "annotations"}) {
    const Json* member = find_member(metadata, key);
    if (member != nullptr && !member->is_null() && !(member->is_object() && all_strings(member)))
      return bad_request("metadata." + std::string(key) + ": expected a map of strings");
  }
  const Json* finalizers = find_member(metadata, "finalizers");
  if (finalizers != nullptr && !(finalizers->is_array() && all_strings(finalizers)))
    return bad_request("metadata.finalizers: expected a list of strings");
  for (const char* key : {"name", "generateName", "namespace", "uid", "resourceVersion"}) {
    const Json* member = find_member(metadata, key);
    if (member != nullptr && !member->is_string())
      return bad_request("metadata." + std::string(key) + ": expected a string");
  }
  return std::nullopt;
}

constexpr std::string_view kKeyRule =
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character";
constexpr std::string_view kLabelRule =
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character";
constexpr size_t kAnnotationBytesMax = 256u << 10;

// Checks the keys and values of labels and annotations.
std::optional<ApiResponse> check_labels_and_annotations(const ResourceType& type,
                                                        std::string_view name,
                                                        const Json& metadata) {
  std::vector<StatusCause> causes;
  auto wrong = [&](const std::string& value, std::string_view rule, const char* field) {
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: " + dump_json(value) + ": " + std::string(rule),
                      "metadata." + std::string(field)});
  };
  size_t bytes = 0;
  for (const char* field : {"labels", "annotations"}) {
    const Json* marks = find_member(metadata, field);
    if (marks == nullptr || !marks->is_object()) continue;
    bool labels = field == std::string_view("labels");
    for (const auto& [key, value] : marks->items()) {
      const std::string& text = value.get_ref<const std::string&>();
      if (!is_qualified_name(key)) wrong(key, kKeyRule, field);
      if (labels && !text.empty() && !is_label_text(text)) wrong(text, kLabelRule, field);
      if (!labels) bytes += key.size() + text.size();
    }
  }
  if (bytes > kAnnotationBytesMax)
    causes.push_back(
        {"FieldValueTooLong",
         "Too long: must have at most " + std::to_string(kAnnotationBytesMax) + " bytes",
         "metadata.annotations"});
  if (causes.empty()) return std::nullopt;
  return invalid_object(type, name, causes);
}

// Finalizers need qualified names. In the core group they need a domain or are Kubernetes' own.
std::optional<ApiResponse> check_finalizer_names(const ResourceType& type, std::string_view name,
                                                 const Json& metadata) {
  const Json* finalizers = find_member(metadata, "finalizers");
  if (finalizers == nullptr) return std::nullopt;
  std::vector<StatusCause> causes;
  auto wrong = [&](const Json& value, std::string_view rule) {
    causes.push_back(wrong_field(value, rule, "metadata.finalizers"));
  };
  for (const Json& each : *finalizers) {
    const std::string& finalizer = each.get_ref<const std::string&>();
    bool standard =
        finalizer == "orphan" || finalizer == "foregroundDeletion" || finalizer == "kubernetes";
    if (!is_qualified_name(finalizer))
      wrong(each, kKeyRule);
    else if (type.group.empty() && !standard && finalizer.find('/') == std::string::npos)
      wrong(each, "name is neither a standard finalizer name nor is it fully qualified");
  }
  if (causes.empty()) return std::nullopt;
  return invalid_object(type, name, causes);
}

std::optional<ApiResponse> check_owners(const ResourceType& type, std::string_view name,
                                        const Json& object) {
  const Json* owners = find_member(metadata_of(object), "ownerReferences");
  if (owners == nullptr || owners->is_null()) return std::nullopt;
  if (!owners->is_array()) return bad_request("metadata.ownerReferences: expected a list");
  std::vector<StatusCause> causes;
  int controllers = 0;
  for (const Json& owner : *owners) {
    if (!owner.is_object())
      return bad_request("metadata.ownerReferences: expected a list of objects");
    for (const char* key : {"apiVersion", "kind", "name", "uid"}) {
      if (string_or(owner, key, "").empty())
        causes.push_back({"FieldValueRequired", "Required value: must not be empty",
                          "metadata.ownerReferences." + std::string(key)});
    }
    if (bool_or(owner, "controller", false)) ++controllers;
  }
  if (controllers > 1)
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: only one reference can have controller set to true",
                      "metadata.ownerReferences"});
  if (causes.empty()) return std::nullopt;
  return invalid_object(type, name, causes);
}

std::optional<ApiResponse> check_namespace(const ResourceType& type, std::string_view expected,
                                           Json& metadata) {
  std::string given = string_or(metadata, "namespace", "");
  if (!given.empty() && given != expected)
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on "
        "the request");
  if (type.namespaced) metadata["namespace"] = expected;
  return std::nullopt;
}

std::optional<ApiResponse> check_precondition(const ResourceType& type,
                                              const UpdateContext& context, const Json& metadata) {
  std::string version = string_or(metadata, "resourceVersion", "");
  if (version.empty() && type.update_needs_version)
    return invalid_object(
        type, context.key.name,
        {{"FieldValueInvalid", "Invalid value: 0x0: must be specified for an update",
          "metadata.resourceVersion"}});
  if (!version.empty() && version != string_or(metadata_of(context.old), "resourceVersion", ""))
    return write_conflict(type, context.key.name,
                          "the object has been modified; please apply your changes to the latest "
                          "version and try again");
  std::string uid = string_or(metadata, "uid", "");
  if (!uid.empty() && uid != uid_of(context.old))
    return write_conflict(type, context.key.name,
                          "Precondition failed: UID in precondition: " + uid +
                              ", UID in object meta: " + uid_of(context.old));
  return std::nullopt;
}

void keep(const Json& from, Json& to, const char* key) {
  if (from.contains(key))
    to[key] = from[key];
  else
    to.erase(key);
}

std::optional<ApiResponse> check_finalizers(const ResourceType& type, const UpdateContext& context,
                                            const Json& metadata) {
  const Json& old = metadata_of(context.old);
  if (!old.contains("deletionTimestamp") || !metadata.contains("finalizers")) return std::nullopt;
  const Json before = old.value("finalizers", Json::array());
  for (const Json& finalizer : metadata["finalizers"]) {
    if (std::find(before.begin(), before.end(), finalizer) == before.end())
      return invalid_object(
          type, context.key.name,
          {{"FieldValueForbidden",
            "Forbidden: no new finalizers can be added if the object is being deleted, found new "
            "finalizers " +
                dump_json(finalizer),
            "metadata.finalizers"}});
  }
  return std::nullopt;
}

bool needs_label_name(const ResourceType& type) {
  return is_namespace(type) || is_core(type, "services");
}

bool spec_changed(const Json& old, const Json& object) {
  Json before = old;
  Json after = object;
  for (Json* either : {&before, &after}) {
    either->erase("metadata");
    either->erase("status");
  }
  return before != after;
}

std::optional<ApiResponse> prepare_main(const ResourceType& type, const UpdateContext& context,
                                        Json& object) {
  const Json& old_metadata = metadata_of(context.old);
  Json& metadata = object["metadata"];
  for (const char* key : {"uid", "creationTimestamp", "generation", "deletionTimestamp",
                          "deletionGracePeriodSeconds", "resourceVersion", "generateName"})
    keep(old_metadata, metadata, key);
  if (auto error = check_finalizers(type, context, metadata)) return error;
  if (auto error = check_finalizer_names(type, context.key.name, metadata)) return error;
  if (auto error = check_labels_and_annotations(type, context.key.name, metadata)) return error;
  if (auto error = check_owners(type, context.key.name, object)) return error;
  if (type.has_status) keep(context.old, object, "status");
  if (auto error = complete_updated(type, context, object)) return error;
  if (type.has_generation && spec_changed(context.old, object))
    metadata["generation"] = int_or(old_metadata, "generation", 0) + 1;
  return std::nullopt;
}

}  // namespace

bool is_object_name(std::string_view name) {
  auto alphanumeric = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 253) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    bool edge = i == 0 || i + 1 == name.size() || name[i - 1] == '.' || name[i + 1] == '.';
    if (!alphanumeric(name[i]) && (edge || (name[i] != '-' && name[i] != '.'))) return false;
  }
  return true;
}

bool is_label_text(std::string_view text) {
  auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && text.size() <= 63 && alphanumeric(text.front()) &&
         alphanumeric(text.back()) && std::all_of(text.begin(), text.end(), [&](char c) {
           return alphanumeric(c) || c == '-' || c == '_' || c == '.';
         });
}

bool is_qualified_name(std::string_view key) {
  size_t slash = key.find('/');
  if (slash == std::string_view::npos) return is_label_text(key);
  return is_object_name(key.substr(0, slash)) && is_label_text(key.substr(slash + 1));
}

bool is_label_name(std::string_view name) {
  return name.size() <= 63 && name.find('.') == std::string_view::npos && is_object_name(name);
}

void drop_empty(Json& metadata) {
  for (const char* key : {"labels", "annotations", "ownerReferences", "finalizers"}) {
    auto found = metadata.find(key);
    if (found != metadata.end() && found->empty()) metadata.erase(found);
  }
}

std::optional<ApiResponse> check_kind(const ResourceType& type, Json& object) {
  if (!object.is_object()) return bad_request("the body is not an object");
  std::string version = type.api_version();
  for (const auto& [key, expected] :
       {std::pair<const char*, std::string>{"kind", std::string(type.kind)},
        std::pair<const char*, std::string>{"apiVersion", version}}) {
    const Json* given = find_member(object, key);
    if (given == nullptr && type.custom)
      return bad_request("Object '" + std::string(key) + "' is missing in the body, expected \"" +
                         expected + "\"");
    if (given != nullptr && *given != expected)
      return bad_request(std::string(key) + " in the body (" + dump_json(*given) +
                         ") does not match the expected \"" + expected + "\"");
    object[key] = expected;
  }
  if (!object.contains("metadata") || object["metadata"].is_null())
    object["metadata"] = Json::object();
  if (!object["metadata"].is_object()) return bad_request("metadata: expected an object");
  if (auto error = check_metadata_types(object["metadata"])) return error;
  drop_empty(object["metadata"]);
  return std::nullopt;
}

std::optional<ApiResponse> prepare_create(const ResourceType& type, const CreateContext& context,
                                          Json& object) {
  if (auto error = check_kind(type, object)) return error;
  Json& metadata = object["metadata"];
  if (auto error = check_namespace(type, context.namespace_, metadata)) return error;
  std::string name = string_or(metadata, "name", "");
  std::string prefix = string_or(metadata, "generateName", "");
  if (name.empty() && !prefix.empty()) {
    name = prefix.substr(0, kGeneratedNameMax - context.name_suffix.size()) + context.name_suffix;
    metadata["name"] = name;
  }
  if (name.empty())
    return invalid_object(type, name,
                          {{"FieldValueRequired",
                            "Required value: name or generateName is required", "metadata.name"}});
  if (!is_object_name(name) || (needs_label_name(type) && !is_label_name(name)))
    return invalid_object(
        type, name,
        {{"FieldValueInvalid", "Invalid value: " + dump_json(name) + ": " + std::string(kNameRule),
          "metadata.name"}});
  if (!string_or(metadata, "resourceVersion", "").empty())
    return failure(500, "InternalError",
                   "resourceVersion should not be set on objects to be created");
  if (auto error = check_finalizer_names(type, name, metadata)) return error;
  if (auto error = check_labels_and_annotations(type, name, metadata)) return error;
  if (auto error = check_owners(type, name, object)) return error;
  for (const char* key : {"deletionTimestamp", "deletionGracePeriodSeconds", "generation",
                          "selfLink", "resourceVersion"})
    metadata.erase(key);
  metadata["uid"] = context.uid;
  metadata["creationTimestamp"] = rfc3339(context.now);
  if (type.has_generation) metadata["generation"] = 1;
  if (type.has_status) object.erase("status");
  return complete_new(type, context, object);
}

std::optional<ApiResponse> prepare_update(const ResourceType& type, const UpdateContext& context,
                                          Json& object) {
  if (auto error = check_kind(type, object)) return error;
  Json& metadata = object["metadata"];
  std::string name = string_or(metadata, "name", "");
  if (name.empty() && type.update_needs_version)
    return bad_request("name of the object must be given");
  if (!name.empty() && name != context.key.name)
    return bad_request("the name of the object (" + name +
                       ") does not match the name on the URL (" + context.key.name + ")");
  metadata["name"] = context.key.name;
  if (auto error = check_namespace(type, context.key.namespace_, metadata)) return error;
  if (auto error = check_precondition(type, context, metadata)) return error;
  if (context.subresource == "status") {
    Json updated = context.old;
    keep(object, updated, "status");
    keep(metadata, updated["metadata"], "managedFields");
    object = std::move(updated);
    return std::nullopt;
  }
  return prepare_main(type, context, object);
}

}  // namespace lockstep::local
