#include <cmath>
#include <set>

#include "local/schema/pattern.h"
#include "local/schema/schema.h"

namespace lockstep::local {
namespace {

constexpr int kDepthMax = 48;  // of nested objects and arrays
constexpr size_t kNodesMax = 20'000;
constexpr size_t kEnumMax = 4096;

const std::set<std::string_view> kTypes = {"object",  "array",  "string",
                                           "integer", "number", "boolean"};

// JSON Schema keywords that this server does not support, or that a structural schema forbids.
const std::map<std::string_view, std::string_view> kUnsupportedKeywords = {
    {"$ref", "Forbidden: $ref is not supported"},
    {"definitions", "Forbidden: not in a structural schema"},
    {"dependencies", "Forbidden: not in a structural schema"},
    {"id", "Forbidden: not in a structural schema"},
    {"deprecated", "Forbidden: not in a structural schema"},
    {"patternProperties", "Forbidden: not in a structural schema"},
    {"additionalItems", "Forbidden: not in a structural schema"},
    {"allOf", "Forbidden: this server does not support it"},
    {"anyOf", "Forbidden: this server does not support it"},
    {"oneOf", "Forbidden: this server does not support it"},
    {"not", "Forbidden: this server does not support it"},
};

// Keywords that this server ignores: texts for people, and CEL rules, which servers before 1.25
// ignore too.
const std::set<std::string_view> kIgnoredKeywords = {"title", "example", "externalDocs", "$schema",
                                                     "x-kubernetes-validations"};

Error wrong(const std::string& path, std::string_view what) {
  return invalid(path + ": " + std::string(what));
}

std::string unsupported(const Json& value, const std::string& choices) {
  return "Unsupported value: " + dump_json(value) + ": supported values: " + choices;
}

Error invalid_value(const std::string& path, const std::string& value, std::string_view what) {
  return wrong(path, "Invalid value: \"" + value + "\": " + std::string(what));
}

Status read_text(const Json& value, const std::string& path, std::string& target) {
  if (!value.is_string()) return wrong(path, "must be a string");
  target = value.get<std::string>();
  return {};
}

Status read_flag(const Json& value, const std::string& path, bool& target) {
  if (!value.is_boolean()) return wrong(path, "must be true or false");
  target = value.get<bool>();
  return {};
}

Status read_number(const Json& value, const std::string& path, std::optional<double>& target) {
  if (!value.is_number()) return wrong(path, "must be a number");
  target = value.get<double>();
  return {};
}

Status read_count(const Json& value, const std::string& path, std::optional<int64_t>& target) {
  if (!value.is_number_integer() || value < 0) {
    return wrong(path, "must be an integer of at least 0");
  }
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return wrong(path, "must fit into 64 bits");
  }
  target = value.get<int64_t>();
  return {};
}

Status read_texts(const Json& value, const std::string& path, std::vector<std::string>& target) {
  if (!value.is_array()) return wrong(path, "must be a list of strings");
  for (const Json& item : value) {
    if (!item.is_string()) return wrong(path, "must be a list of strings");
    target.push_back(item.get<std::string>());
  }
  return {};
}

class Compiler {
 public:
  Status read(const Json& schema, const std::string& path, int depth, SchemaNode& node);

 private:
  Status read_keyword(const std::string& keyword, const Json& value, const std::string& path,
                      int depth, SchemaNode& node);
  Status read_structure(const std::string& keyword, const Json& value, const std::string& path,
                        int depth, SchemaNode& node, bool& known);
  Status read_bound(const std::string& keyword, const Json& value, const std::string& path,
                    SchemaNode& node, bool& known);
  Status read_extension(const std::string& keyword, const Json& value, const std::string& path,
                        SchemaNode& node, bool& known);
  Status read_properties(const Json& value, const std::string& path, int depth, SchemaNode& node);
  Status read_additional(const Json& value, const std::string& path, int depth, SchemaNode& node);

  size_t nodes_ = 0;
};

Status Compiler::read_properties(const Json& value, const std::string& path, int depth,
                                 SchemaNode& node) {
  if (!value.is_object()) return wrong(path, "must be an object of schemas");
  for (const auto& [name, schema] : value.items()) {
    TRY(read(schema, path + "[" + name + "]", depth + 1, node.properties[name]));
  }
  return {};
}

Status Compiler::read_additional(const Json& value, const std::string& path, int depth,
                                 SchemaNode& node) {
  if (value.is_boolean()) {
    if (!value.get<bool>()) return {};  // unknown members are pruned
    node.additional = std::make_unique<SchemaNode>();
    node.additional->preserve_unknown = true;
    return {};
  }
  node.additional = std::make_unique<SchemaNode>();
  return read(value, path, depth + 1, *node.additional);
}

Status Compiler::read_structure(const std::string& keyword, const Json& value,
                                const std::string& path, int depth, SchemaNode& node, bool& known) {
  if (keyword == "type") return read_text(value, path, node.type);
  if (keyword == "format") return read_text(value, path, node.format);
  if (keyword == "description") return read_text(value, path, node.description);
  if (keyword == "nullable") return read_flag(value, path, node.nullable);
  if (keyword == "required") return read_texts(value, path, node.required);
  if (keyword == "properties") return read_properties(value, path, depth, node);
  if (keyword == "additionalProperties") return read_additional(value, path, depth, node);
  if (keyword == "items") {
    if (!value.is_object())
      return wrong(path, "Forbidden: items must be a schema object and not an array");
    node.items = std::make_unique<SchemaNode>();
    return read(value, path, depth + 1, *node.items);
  }
  if (keyword == "default") {
    node.default_value = value;
    return {};
  }
  if (keyword == "enum") {
    if (!value.is_array() || value.size() > kEnumMax) {
      return wrong(path, "must be a list of at most " + std::to_string(kEnumMax) + " values");
    }
    node.enum_values.assign(value.begin(), value.end());
    return {};
  }
  known = false;
  return {};
}

Status Compiler::read_bound(const std::string& keyword, const Json& value, const std::string& path,
                            SchemaNode& node, bool& known) {
  if (keyword == "minimum") return read_number(value, path, node.minimum);
  if (keyword == "maximum") return read_number(value, path, node.maximum);
  if (keyword == "exclusiveMinimum") return read_flag(value, path, node.exclusive_minimum);
  if (keyword == "exclusiveMaximum") return read_flag(value, path, node.exclusive_maximum);
  if (keyword == "multipleOf") {
    TRY(read_number(value, path, node.multiple_of));
    return *node.multiple_of > 0 ? Status() : wrong(path, "must be greater than 0");
  }
  if (keyword == "minLength") return read_count(value, path, node.length_min);
  if (keyword == "maxLength") return read_count(value, path, node.length_max);
  if (keyword == "minItems") return read_count(value, path, node.items_min);
  if (keyword == "maxItems") return read_count(value, path, node.items_max);
  if (keyword == "minProperties") return read_count(value, path, node.properties_min);
  if (keyword == "maxProperties") return read_count(value, path, node.properties_max);
  if (keyword == "uniqueItems") {
    if (value == false) return {};
    return wrong(path,
                 "Forbidden: uniqueItems cannot be set to true since the runtime complexity "
                 "becomes quadratic");
  }
  if (keyword == "pattern") {
    TRY(read_text(value, path, node.pattern));
    const Result<std::shared_ptr<const Pattern>> matcher = Pattern::compile(node.pattern);
    if (!matcher.ok()) {
      return wrong(path, "Invalid value: " + dump_json(value) + ": " + matcher.error().message);
    }
    node.matcher = *matcher;
    return {};
  }
  known = false;
  return {};
}

Status read_list_type(const Json& value, const std::string& path, ListType& target) {
  if (value == "atomic") {
    target = ListType::kAtomic;
  } else if (value == "set") {
    target = ListType::kSet;
  } else if (value == "map") {
    target = ListType::kMap;
  } else {
    return wrong(path, unsupported(value, R"("atomic", "set", "map")"));
  }
  return {};
}

Status Compiler::read_extension(const std::string& keyword, const Json& value,
                                const std::string& path, SchemaNode& node, bool& known) {
  if (keyword == "x-kubernetes-int-or-string") return read_flag(value, path, node.int_or_string);
  if (keyword == "x-kubernetes-embedded-resource") {
    return read_flag(value, path, node.embedded_resource);
  }
  if (keyword == "x-kubernetes-preserve-unknown-fields") {
    if (value != true) {
      return wrong(path, "Invalid value: " + dump_json(value) + ": must be true or undefined");
    }
    node.preserve_unknown = true;
    return {};
  }
  if (keyword == "x-kubernetes-list-type") return read_list_type(value, path, node.list_type);
  if (keyword == "x-kubernetes-list-map-keys") return read_texts(value, path, node.list_keys);
  if (keyword == "x-kubernetes-map-type") {
    if (value != "atomic" && value != "granular") {
      return wrong(path, unsupported(value, R"("atomic", "granular")"));
    }
    node.atomic_object = value == "atomic";
    return {};
  }
  known = false;
  return {};
}

Status Compiler::read_keyword(const std::string& keyword, const Json& value,
                              const std::string& path, int depth, SchemaNode& node) {
  bool known = true;
  TRY(read_structure(keyword, value, path, depth, node, known));
  if (known) return {};
  known = true;
  TRY(read_bound(keyword, value, path, node, known));
  if (known) return {};
  known = true;
  TRY(read_extension(keyword, value, path, node, known));
  if (known || kIgnoredKeywords.contains(keyword)) return {};
  const auto refused = kUnsupportedKeywords.find(keyword);
  if (refused != kUnsupportedKeywords.end()) return wrong(path, refused->second);
  return wrong(path, "Forbidden: this server does not know this keyword");
}

// True for the anyOf that spells out x-kubernetes-int-or-string in JSON Schema.
bool is_int_or_string(const Json& any_of) {
  return any_of == Json({{{"type", "integer"}}, {{"type", "string"}}});
}

Status check_keys(const SchemaNode& node, const std::string& path) {
  const std::string at = path + ".x-kubernetes-list-map-keys";
  if (node.list_keys.empty()) {
    return wrong(at, "Required value: must not be empty if x-kubernetes-list-type is map");
  }
  if (node.items->type != "object") {
    return invalid_value(path + ".items.type", node.items->type,
                         "must be object if parent array's x-kubernetes-list-type is map");
  }
  for (const std::string& key : node.list_keys) {
    const auto member = node.items->properties.find(key);
    if (member == node.items->properties.end()) {
      return invalid_value(at, key, "entries must all be names of item properties");
    }
    const SchemaNode& schema = member->second;
    const std::string key_path = path + ".items.properties[" + key + "]";
    if (schema.type == "object" || schema.type == "array") {
      return invalid_value(key_path + ".type", schema.type,
                           "must be a scalar type if parent array's x-kubernetes-list-type is map");
    }
    const auto& required = node.items->required;
    if (!schema.default_value &&
        std::find(required.begin(), required.end(), key) == required.end()) {
      return wrong(key_path + ".default",
                   "Required value: this property is in x-kubernetes-list-map-keys, so it must "
                   "have a default or be a required property");
    }
  }
  return {};
}

Status check_list(const SchemaNode& node, const std::string& path) {
  if (node.items == nullptr) return wrong(path + ".items", "Required value: must be specified");
  if (node.list_type == ListType::kMap) return check_keys(node, path);
  if (!node.list_keys.empty()) {
    return wrong(path + ".x-kubernetes-list-map-keys",
                 "Forbidden: must be empty if x-kubernetes-list-type is not map");
  }
  if (node.list_type != ListType::kSet) return {};
  const bool is_granular = node.items->type == "object" && !node.items->atomic_object;
  if (is_granular || (node.items->type == "array" && node.items->list_type != ListType::kAtomic)) {
    return wrong(path + ".items", "Invalid value: \"" + node.items->type +
                                      "\": must be atomic as item of a list with "
                                      "x-kubernetes-list-type=set");
  }
  return {};
}

Status check_object_words(const SchemaNode& node, const std::string& path) {
  if (node.additional != nullptr && !node.properties.empty()) {
    return wrong(path + ".additionalProperties",
                 "Forbidden: additionalProperties and properties are mutual exclusive");
  }
  if (node.atomic_object && node.type != "object") {
    return invalid_value(path + ".type", node.type,
                         "must be object if x-kubernetes-map-type is specified");
  }
  if (!node.embedded_resource) return {};
  if (node.properties.empty() && !node.preserve_unknown) {
    return wrong(path + ".properties",
                 "Required value: must not be empty if x-kubernetes-embedded-resource is true "
                 "without x-kubernetes-preserve-unknown-fields");
  }
  if (node.type == "object") return {};
  return invalid_value(path + ".type", node.type,
                       "must be object if x-kubernetes-embedded-resource is true");
}

Status check_structure(const SchemaNode& node, const std::string& path) {
  if (node.type.empty()) {
    if (!node.int_or_string && !node.preserve_unknown) {
      return wrong(path + ".type",
                   std::string("Required value: must not be empty for specified ") +
                       (path.ends_with(".items") ? "array items" : "object fields"));
    }
  } else if (!kTypes.contains(node.type)) {
    return wrong(path + ".type",
                 unsupported(node.type, R"("array", "boolean", "integer", "number", "object", )"
                                        R"("string")"));
  }
  TRY(check_object_words(node, path));
  if (node.type == "array") return check_list(node, path);
  if (node.list_type != ListType::kAtomic || !node.list_keys.empty()) {
    return invalid_value(path + ".type", node.type,
                         "must be array if x-kubernetes-list-type is specified");
  }
  if (node.items == nullptr) return {};
  return wrong(path + ".items", "Forbidden: only arrays have items");
}

// Checks the root's type, and what it says about members that every object has.
Status check_root(const SchemaNode& root, const std::string& path) {
  if (root.type.empty())
    return wrong(path + ".type", "Required value: must not be empty at the root");
  if (root.type != "object") {
    return invalid_value(path + ".type", root.type, "must be object at the root");
  }
  if (root.nullable)
    return wrong(path + ".nullable", "Forbidden: nullable cannot be true at the root");
  for (const auto& [name, property] : root.properties) {
    const std::string at = path + ".properties[" + name + "]";
    const bool is_text = name == "apiVersion" || name == "kind";
    if (is_text && property.type != "string") {
      return invalid_value(at + ".type", property.type, "must be string");
    }
    if (name != "metadata") continue;
    if (property.type != "object") {
      return invalid_value(at + ".type", property.type, "must be object");
    }
    for (const auto& [member, schema] : property.properties) {
      if (member == "name" || member == "generateName") continue;
      return wrong(at,
                   "Forbidden: must not specify anything other than name and generateName, but "
                   "metadata is implicitly specified");
    }
  }
  return {};
}

Status check_default(const SchemaNode& node, const std::string& path) {
  if (!node.default_value) return {};
  Json copy = *node.default_value;
  const std::vector<std::string> unknown = prune(node, copy);
  if (!unknown.empty()) {
    return wrong(path + ".default", "Invalid value: " + dump_json(*node.default_value) +
                                        ": must not have unknown fields");
  }
  const std::vector<SchemaProblem> problems = validate(node, copy, 1);
  if (problems.empty()) return {};
  return wrong(path + ".default", problems.front().message);
}

Status Compiler::read(const Json& schema, const std::string& path, int depth, SchemaNode& node) {
  if (!schema.is_object()) return wrong(path, "must be a schema object");
  if (depth > kDepthMax) {
    return wrong(path, "is nested deeper than " + std::to_string(kDepthMax) + " levels");
  }
  if (++nodes_ > kNodesMax) {
    return wrong(path, "the schema has more than " + std::to_string(kNodesMax) + " nodes");
  }
  for (const auto& [keyword, value] : schema.items()) {
    if (value.is_null() && keyword != "default") continue;
    if (keyword == "anyOf" && is_int_or_string(value)) continue;
    TRY(read_keyword(keyword, value, path + "." + keyword, depth, node));
  }
  if (node.int_or_string) node.type.clear();
  if (!node.nullable && node.default_value && node.default_value->is_null()) {
    node.default_value.reset();
  }
  if (depth == 1) TRY(check_root(node, path));
  TRY(check_structure(node, path));
  return check_default(node, path);
}

}  // namespace

const SchemaNode* SchemaNode::member(std::string_view name) const {
  const auto it = properties.find(name);
  return it == properties.end() ? additional.get() : &it->second;
}

Result<std::shared_ptr<const SchemaNode>> compile_schema(const Json& open_api_v3_schema) {
  auto root = std::make_shared<SchemaNode>();
  TRY(Compiler().read(open_api_v3_schema, "openAPIV3Schema", 1, *root));
  return std::shared_ptr<const SchemaNode>(std::move(root));
}

}  // namespace lockstep::local
