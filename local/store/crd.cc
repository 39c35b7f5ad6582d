#include "local/store/crd.h"

#include <algorithm>
#include <set>

#include "local/store/object_rules.h"
#include "local/table/json_path.h"

namespace lockstep::local {
namespace {

constexpr size_t kVersionsMax = 20;
constexpr size_t kColumnsMax = 50;

// Accepts paths like ".spec.a.b", which scale can follow.
bool is_plain_path(std::string_view path) {
  bool after_dot = false;
  for (char c : path) {
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_';
    if (!letter && (c != '.' || after_dot)) return false;
    after_dot = c == '.';
  }
  return path.starts_with('.') && !after_dot;
}

const Json& member(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const Json* found = find_member(object, key);
  return found == nullptr ? kNone : *found;
}

std::vector<std::string> strings(const Json& object, const char* key) {
  std::vector<std::string> texts;
  for (const Json& value : member(object, key))
    if (value.is_string()) texts.push_back(value.get<std::string>());
  return texts;
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// Collects the errors in a CRD, with kube-apiserver's wording.
class CrdChecks {
 public:
  explicit CrdChecks(const Json& crd) : crd_(crd), spec_(member(crd, "spec")) {}

  std::vector<StatusCause> run() {
    check_names();
    check_versions();
    if (const Json* conversion = find_member(spec_, "conversion");
        conversion != nullptr && string_or(*conversion, "strategy", "None") != "None")
      unsupported("spec.conversion.strategy", string_or(*conversion, "strategy", ""), {"None"});
    return std::move(causes_);
  }

 private:
  void required(const std::string& field, const std::string& more = "") {
    causes_.push_back(
        {"FieldValueRequired", "Required value" + (more.empty() ? "" : ": " + more), field});
  }
  void wrong(const std::string& field, const Json& value, const std::string& rule) {
    causes_.push_back(
        {"FieldValueInvalid", "Invalid value: " + dump_json(value) + ": " + rule, field});
  }
  void unsupported(const std::string& field, const std::string& value,
                   const std::vector<std::string>& good) {
    std::string words;
    for (const std::string& one : good) words += (words.empty() ? "\"" : ", \"") + one + "\"";
    causes_.push_back({"FieldValueNotSupported",
                       "Unsupported value: \"" + value + "\": supported values: " + words, field});
  }
  // Checks a DNS label; names of types have to be one.
  void check_label(const std::string& field, const std::string& value) {
    if (value.empty()) return required(field);
    if (!is_label_name(value))
      wrong(field, value,
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or "
            "'-', and must start and end with an alphanumeric character");
  }

  void check_names() {
    const Json& names = member(spec_, "names");
    std::string group = string_or(spec_, "group", "");
    std::string plural = string_or(names, "plural", "");
    if (group.empty())
      required("spec.group");
    else if (!is_object_name(group))
      wrong("spec.group", group, "expected the name of a domain");
    else if (group.find('.') == std::string::npos)
      wrong("spec.group", group, "should be a domain with at least one dot");
    if (std::string name = string_or(member(crd_, "metadata"), "name", "");
        name != plural + "." + group)
      wrong("metadata.name", name, "must be spec.names.plural+\".\"+spec.group");
    std::string scope = string_or(spec_, "scope", "");
    if (scope.empty())
      required("spec.scope");
    else if (scope != "Namespaced" && scope != "Cluster")
      unsupported("spec.scope", scope, {"Cluster", "Namespaced"});
    check_label("spec.names.plural", plural);
    check_label("spec.names.singular", string_or(names, "singular", ""));
    std::string kind = string_or(names, "kind", "");
    check_label("spec.names.kind", lower(kind));
    check_label("spec.names.listKind", lower(string_or(names, "listKind", "")));
    if (!kind.empty() && kind == string_or(names, "listKind", ""))
      wrong("spec.names.listKind", kind, "kind and listKind may not be the same");
    for (const std::string& name : strings(names, "shortNames"))
      check_label("spec.names.shortNames", name);
  }

  void check_versions() {
    const Json& versions = member(spec_, "versions");
    if (!versions.is_array() || versions.empty())
      return required("spec.versions", "must have at least one version");
    if (versions.size() > kVersionsMax)
      return causes_.push_back(
          {"FieldValueTooMany",
           "Too many: must have at most " + std::to_string(kVersionsMax) + " items",
           "spec.versions"});
    std::set<std::string> seen;
    int storage = 0;
    for (size_t i = 0; i < versions.size(); ++i) {
      const Json& version = versions[i];
      std::string at = "spec.versions[" + std::to_string(i) + "]";
      std::string name = string_or(version, "name", "");
      check_label(at + ".name", name);
      if (!seen.insert(name).second) wrong(at + ".name", name, "must be unique");
      if (bool_or(version, "storage", false)) ++storage;
      check_version(version, at);
    }
    if (storage != 1)
      wrong("spec.versions", Json::array(),
            "must have exactly one version marked as storage version");
  }

  void check_version(const Json& version, const std::string& at) {
    const Json& schema = member(member(version, "schema"), "openAPIV3Schema");
    if (schema.empty())
      required(at + ".schema.openAPIV3Schema", "schemas are required");
    else
      check_schema(schema, at);
    const Json& columns = member(version, "additionalPrinterColumns");
    for (size_t i = 0; i < columns.size() && columns.is_array(); ++i) {
      std::string column = at + ".additionalPrinterColumns[" + std::to_string(i) + "]";
      for (const char* key : {"name", "jsonPath", "type"})
        if (string_or(columns[i], key, "").empty()) required(column + "." + key);
    }
    if (columns.size() > kColumnsMax)
      wrong(at + ".additionalPrinterColumns", columns.size(),
            "must have at most " + std::to_string(kColumnsMax) + " items");
    const Json* scale = find_member(member(version, "subresources"), "scale");
    if (scale == nullptr) return;
    check_path(*scale, "specReplicasPath", ".spec.", at);
    check_path(*scale, "statusReplicasPath", ".status.", at);
    std::string selector = string_or(*scale, "labelSelectorPath", "");
    if (!selector.empty() && !is_plain_path(selector))
      wrong(at + ".subresources.scale.labelSelectorPath", selector,
            "expected names of members, each after a dot");
  }

  // Splits the compiler's message, which reads "<path in the schema>: <reason>".
  void check_schema(const Json& schema, const std::string& at) {
    const auto compiled = compile_schema(schema);
    if (compiled.ok()) return;
    const std::string& words = compiled.error().message;
    const size_t colon = std::min(words.find(": "), words.size());
    const std::string why = words.substr(std::min(colon + 2, words.size()));
    const std::string field = at + ".schema." + words.substr(0, colon);
    for (const auto& [begin, reason] : {std::pair("Required value", "FieldValueRequired"),
                                        std::pair("Forbidden", "FieldValueForbidden"),
                                        std::pair("Unsupported value", "FieldValueNotSupported"),
                                        std::pair("Invalid value", "FieldValueInvalid")}) {
      if (why.starts_with(begin)) return causes_.push_back({reason, why, field});
    }
    causes_.push_back({"FieldValueInvalid", "Invalid value: " + why, field});
  }

  void check_path(const Json& scale, const char* key, const std::string& root,
                  const std::string& at) {
    std::string path = string_or(scale, key, "");
    std::string field = at + ".subresources.scale." + key;
    if (path.empty())
      required(field);
    else if (!path.starts_with(root))
      wrong(field, path, "should be a json path under " + root.substr(0, root.size() - 1));
    else if (!is_plain_path(path))
      wrong(field, path, "expected names of members, each after a dot");
  }

  const Json& crd_;
  const Json& spec_;
  std::vector<StatusCause> causes_;
};

void fill_crd_defaults(Json& crd) {
  if (!member(crd, "spec").is_object()) return;
  Json& spec = crd["spec"];
  if (!spec.contains("conversion")) spec["conversion"] = {{"strategy", "None"}};
  if (!member(spec, "names").is_object() || !spec.contains("names")) return;
  Json& names = spec["names"];
  std::string kind = string_or(names, "kind", "");
  if (string_or(names, "singular", "").empty()) names["singular"] = lower(kind);
  if (string_or(names, "listKind", "").empty()) names["listKind"] = kind + "List";
}

std::vector<StatusCause> changed_for_ever(const Json& old, const Json& crd) {
  std::vector<StatusCause> causes;
  auto fixed = [&](const Json& before, const Json& after, const char* key,
                   const std::string& field) {
    if (string_or(before, key, "") != string_or(after, key, ""))
      causes.push_back(
          {"FieldValueInvalid",
           "Invalid value: " + dump_json(string_or(after, key, "")) + ": field is immutable",
           field});
  };
  fixed(member(old, "spec"), member(crd, "spec"), "group", "spec.group");
  fixed(member(old, "spec"), member(crd, "spec"), "scope", "spec.scope");
  for (const char* key : {"plural", "kind"})
    fixed(member(member(old, "spec"), "names"), member(member(crd, "spec"), "names"), key,
          "spec.names." + std::string(key));
  return causes;
}

// Returns a name that another type of the group already has; "" if all are free.
std::string taken_name(const TypeRegistry& types, const Json& crd) {
  const Json& spec = member(crd, "spec");
  const Json& names = member(spec, "names");
  std::set<std::string> ours = {string_or(names, "plural", ""), string_or(names, "singular", "")};
  for (const std::string& name : strings(names, "shortNames")) ours.insert(name);
  for (const ResourceType* type : types.types()) {
    if (type->group != string_or(spec, "group", "")) continue;
    if (type->custom && type->plural == string_or(names, "plural", "")) continue;  // itself
    if (type->kind == string_or(names, "kind", "")) return type->kind;
    if (ours.contains(type->plural)) return type->plural;
    if (ours.contains(type->singular)) return type->singular;
    for (const std::string& name : type->short_names)
      if (ours.contains(name)) return name;
  }
  return "";
}

void set_condition(Json& status, WallTime now, Json condition) {
  Json& conditions = status["conditions"];
  if (!conditions.is_array()) conditions = Json::array();
  for (Json& existing : conditions) {
    if (string_or(existing, "type", "") != condition["type"]) continue;
    bool same = existing["status"] == condition["status"];
    condition["lastTransitionTime"] = same ? existing["lastTransitionTime"] : Json(rfc3339(now));
    existing = std::move(condition);
    return;
  }
  condition["lastTransitionTime"] = rfc3339(now);
  conditions.push_back(std::move(condition));
}

TableColumn column_of(const Json& column) {
  return {.name = string_or(column, "name", ""),
          .type = string_or(column, "type", "string"),
          .format = string_or(column, "format", ""),
          .description = string_or(column, "description", ""),
          .json_path = string_or(column, "jsonPath", ""),
          .priority = static_cast<int>(std::clamp<int64_t>(int_or(column, "priority", 0), 0, 100))};
}

}  // namespace

std::optional<ApiResponse> check_crd(const ResourceType& crd_type, const Json* old, Json& crd) {
  fill_crd_defaults(crd);
  std::string name = string_or(member(crd, "metadata"), "name", "");
  std::vector<StatusCause> causes = CrdChecks(crd).run();
  if (old != nullptr) {
    for (StatusCause& cause : changed_for_ever(*old, crd)) causes.push_back(std::move(cause));
  }
  if (!causes.empty()) return invalid_object(crd_type, name, causes);
  if (Result<std::vector<ResourceType>> types = types_of_crd(crd); !types.ok())
    return invalid_object(
        crd_type, name,
        {{"FieldValueInvalid", "Invalid value: " + types.error().message, "spec.versions"}});
  return std::nullopt;
}

bool accept_crd(const TypeRegistry& types, WallTime now, Json& crd) {
  Json& metadata = crd["metadata"];
  Json& finalizers = metadata["finalizers"];
  if (!finalizers.is_array()) finalizers = Json::array();
  if (!metadata.contains("deletionTimestamp") &&
      std::find(finalizers.begin(), finalizers.end(), kCrdFinalizer) == finalizers.end())
    finalizers.push_back(kCrdFinalizer);
  if (finalizers.empty()) metadata.erase("finalizers");
  Json& status = crd["status"];
  if (!status.is_object()) status = Json::object();
  std::string taken = taken_name(types, crd);
  bool accepted = taken.empty();
  set_condition(
      status, now,
      {{"type", "NamesAccepted"},
       {"status", accepted ? "True" : "False"},
       {"reason", accepted ? "NoConflicts" : "NameConflict"},
       {"message", accepted ? "no conflicts found" : "\"" + taken + "\" is already in use"}});
  set_condition(status, now,
                {{"type", "Established"},
                 {"status", accepted ? "True" : "False"},
                 {"reason", accepted ? "InitialNamesAccepted" : "NotAccepted"},
                 {"message", accepted ? "the initial names have been accepted"
                                      : "not all names are accepted"}});
  if (accepted) status["acceptedNames"] = crd["spec"]["names"];
  Json& stored = status["storedVersions"];
  if (!stored.is_array()) stored = Json::array();
  for (const Json& version : crd["spec"]["versions"]) {
    if (bool_or(version, "storage", false) &&
        std::find(stored.begin(), stored.end(), version["name"]) == stored.end())
      stored.push_back(version["name"]);
  }
  return accepted;
}

Result<std::vector<ResourceType>> types_of_crd(const Json& crd) {
  const Json& spec = member(crd, "spec");
  const Json& names = member(spec, "names");
  std::vector<ResourceType> types;
  for (const Json& version : member(spec, "versions")) {
    const Json& subresources = member(version, "subresources");
    ResourceType type{.group = string_or(spec, "group", ""),
                      .version = string_or(version, "name", ""),
                      .plural = string_or(names, "plural", ""),
                      .kind = string_or(names, "kind", ""),
                      .singular = string_or(names, "singular", ""),
                      .list_kind = string_or(names, "listKind", ""),
                      .short_names = strings(names, "shortNames"),
                      .categories = strings(names, "categories"),
                      .namespaced = string_or(spec, "scope", "") != "Cluster",
                      .has_status = subresources.contains("status"),
                      .has_generation = true,
                      .update_needs_version = true,
                      .custom = true};
    type.served = bool_or(version, "served", false);
    if (const Json* scale = find_member(subresources, "scale"))
      type.scale = {.spec_replicas = string_or(*scale, "specReplicasPath", ""),
                    .status_replicas = string_or(*scale, "statusReplicasPath", ""),
                    .label_selector = string_or(*scale, "labelSelectorPath", "")};
    for (const Json& column : member(version, "additionalPrinterColumns")) {
      type.columns.push_back(column_of(column));
      TRY(JsonPath::parse(type.columns.back().json_path));
    }
    TRY_ASSIGN(type.schema, compile_schema(member(member(version, "schema"), "openAPIV3Schema")));
    types.push_back(std::move(type));
  }
  // Put the storage version first: it gives the type its identity.
  const Json& versions = member(spec, "versions");
  for (size_t i = 0; i < types.size(); ++i) {
    if (bool_or(versions[i], "storage", false))
      std::rotate(types.begin(), types.begin() + static_cast<ptrdiff_t>(i),
                  types.begin() + static_cast<ptrdiff_t>(i) + 1);
  }
  return types;
}

}  // namespace lockstep::local
