#include "local/schema/openapi_definitions.h"

#include <algorithm>
#include <cmath>

namespace lockstep::local {
namespace {

constexpr std::string_view kApiVersionWords =
    "The version of the schema that this object is written in, as group/version.";
constexpr std::string_view kKindWords = "The kind of this object, in CamelCase.";
constexpr std::string_view kMetadataWords = "Standard metadata: name, namespace, labels and so on.";

Json described(Json schema, std::string_view words) {
  if (!words.empty()) schema["description"] = words;
  return schema;
}

// Returns a property with a reference. v3 allows other keywords next to a reference only inside
// allOf.
Json property_of(OpenApiVersion version, const std::string& definition, std::string_view words) {
  Json reference = reference_to(version, definition);
  if (version == OpenApiVersion::kV3) reference = {{"allOf", {reference}}};
  return described(std::move(reference), words);
}

Json scalar(std::string_view type) {
  if (type == "bool") return {{"type", "boolean"}};
  if (type == "int32" || type == "int64") return {{"type", "integer"}, {"format", type}};
  if (type == "double") return {{"type", "number"}, {"format", type}};
  if (type == "bytes") return {{"type", "string"}, {"format", "byte"}};
  if (type == "time") return {{"type", "string"}, {"format", "date-time"}};
  if (type == "string") return {{"type", "string"}};
  return {{"x-kubernetes-preserve-unknown-fields", true}};
}

// A type whose values are numbers or strings. v2 calls it a string: readers of v2 accept a number
// as one.
struct MixedType {
  std::string_view name, definition, number, words;
};
constexpr MixedType kMixedTypes[] = {
    {"quantity", "io.k8s.apimachinery.pkg.api.resource.Quantity", "number",
     "An amount of a resource: a decimal number with an optional suffix, such as 500m, 2, 1.5Gi."},
    {"intOrString", "io.k8s.apimachinery.pkg.util.intstr.IntOrString", "integer",
     "A number, or the name of something that has one."},
};

Json definition_of(OpenApiVersion version, const MixedType& mixed) {
  Json schema = {{"description", mixed.words}};
  if (version == OpenApiVersion::kV2) {
    schema["type"] = "string";
  } else {
    schema["oneOf"] = Json::array({{{"type", "string"}}, {{"type", mixed.number}}});
  }
  if (mixed.name == "intOrString") schema["format"] = "int-or-string";
  return schema;
}

class TypeWriter {
 public:
  TypeWriter(OpenApiVersion version, Json& definitions)
      : version_(version), definitions_(definitions) {}

  void add(const TypeRow& row);

 private:
  Json schema_of(std::string_view package, std::string_view type, std::string_view words);
  Json field_schema(const TypeRow& row, const TypeField& field);

  const OpenApiVersion version_;
  Json& definitions_;
};

Json TypeWriter::schema_of(std::string_view package, std::string_view type,
                           std::string_view words) {
  if (type.starts_with("map[")) {
    const std::string_view item = type.substr(4, type.size() - 5);
    return described({{"type", "object"}, {"additionalProperties", schema_of(package, item, "")}},
                     words);
  }
  std::string definition;
  for (const MixedType& mixed : kMixedTypes) {
    if (mixed.name != type) continue;
    definition = mixed.definition;
    definitions_[definition] = definition_of(version_, mixed);
  }
  if (const TypeRow* row = find_type(package, type)) {
    definition = definition_name(*row);
    add(*row);
  }
  if (definition.empty()) return described(scalar(type), words);
  return words.empty() ? reference_to(version_, definition)
                       : property_of(version_, definition, words);
}

Json TypeWriter::field_schema(const TypeRow& row, const TypeField& field) {
  const std::string_view words = type_description(row.name, field.name);
  if (!field.is_list) {
    Json schema = schema_of(row.package, field.type, words);
    if (field.is_atomic) schema["x-kubernetes-map-type"] = "atomic";
    if (!field.default_text.empty()) schema["default"] = field.default_text;
    return schema;
  }
  Json schema = {{"type", "array"}, {"items", schema_of(row.package, field.type, "")}};
  const bool is_set = field.is_merged && field.merge_key.empty();
  schema["x-kubernetes-list-type"] = !field.list_keys.empty() ? "map" : is_set ? "set" : "atomic";
  if (!field.list_keys.empty()) schema["x-kubernetes-list-map-keys"] = field.list_keys;
  if (field.is_merged) {
    schema["x-kubernetes-patch-strategy"] = field.retains_keys ? "merge,retainKeys" : "merge";
  }
  if (!field.merge_key.empty()) schema["x-kubernetes-patch-merge-key"] = field.merge_key;
  return described(std::move(schema), words);
}

void TypeWriter::add(const TypeRow& row) {
  const std::string name = definition_name(row);
  if (definitions_.contains(name)) return;
  definitions_[name] = Json::object();  // placeholder: types may refer to each other
  Json definition = described({{"type", "object"}}, type_description(row.name, ""));
  const TypeFields type = fields_of(row);
  if (type.is_atomic) definition["x-kubernetes-map-type"] = "atomic";
  for (const TypeField& field : type.fields) {
    definition["properties"][std::string(field.name)] = field_schema(row, field);
    if (field.is_required) definition["required"].push_back(field.name);
  }
  definitions_[name] = std::move(definition);
}

// Returns whole numbers as integers: 3, not 3.0.
Json number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

void add_bounds(const SchemaNode& node, Json& schema) {
  if (node.minimum) schema["minimum"] = number(*node.minimum);
  if (node.maximum) schema["maximum"] = number(*node.maximum);
  if (node.exclusive_minimum) schema["exclusiveMinimum"] = true;
  if (node.exclusive_maximum) schema["exclusiveMaximum"] = true;
  if (node.multiple_of) schema["multipleOf"] = number(*node.multiple_of);
  if (node.length_min) schema["minLength"] = *node.length_min;
  if (node.length_max) schema["maxLength"] = *node.length_max;
  if (node.items_min) schema["minItems"] = *node.items_min;
  if (node.items_max) schema["maxItems"] = *node.items_max;
  if (node.properties_min) schema["minProperties"] = *node.properties_min;
  if (node.properties_max) schema["maxProperties"] = *node.properties_max;
  if (!node.pattern.empty()) schema["pattern"] = node.pattern;
  if (!node.enum_values.empty()) schema["enum"] = node.enum_values;
}

void add_extensions(const SchemaNode& node, Json& schema) {
  if (node.int_or_string) schema["x-kubernetes-int-or-string"] = true;
  if (node.preserve_unknown) schema["x-kubernetes-preserve-unknown-fields"] = true;
  if (node.embedded_resource) schema["x-kubernetes-embedded-resource"] = true;
  if (node.atomic_object) schema["x-kubernetes-map-type"] = "atomic";
  if (node.list_type == ListType::kSet) schema["x-kubernetes-list-type"] = "set";
  if (node.list_type == ListType::kMap) {
    schema["x-kubernetes-list-type"] = "map";
    schema["x-kubernetes-list-map-keys"] = node.list_keys;
  }
}

Json schema_of(OpenApiVersion version, const SchemaNode& node);

// Does not require nullable members in v2, because its clients treat null as absent.
void add_members(OpenApiVersion version, const SchemaNode& node, Json& schema) {
  for (const auto& [name, property] : node.properties) {
    schema["properties"][name] = schema_of(version, property);
  }
  if (node.additional != nullptr) {
    schema["additionalProperties"] = schema_of(version, *node.additional);
  }
  if (node.items != nullptr) schema["items"] = schema_of(version, *node.items);
  for (const std::string& name : node.required) {
    const auto property = node.properties.find(name);
    const bool may_be_null = property != node.properties.end() && property->second.nullable;
    if (version == OpenApiVersion::kV2 && may_be_null) continue;
    schema["required"].push_back(name);
  }
}

Json schema_of(OpenApiVersion version, const SchemaNode& node) {
  Json schema = described(Json::object(), node.description);
  const bool is_v2 = version == OpenApiVersion::kV2;
  if (is_v2 && node.nullable) {
    add_extensions(node, schema);
    return schema;
  }
  if (!node.type.empty()) schema["type"] = node.type;
  if (!node.format.empty()) schema["format"] = node.format;
  if (!is_v2 && node.nullable) schema["nullable"] = true;
  if (!is_v2 && node.default_value) schema["default"] = *node.default_value;
  add_bounds(node, schema);
  add_extensions(node, schema);
  if (is_v2 && node.preserve_unknown) return schema;
  add_members(version, node, schema);
  return schema;
}

}  // namespace

std::string definition_name(const TypeRow& row) {
  std::string_view prefix = "io.k8s.apimachinery.pkg.apis.meta.v1.";
  if (row.package == "core") prefix = "io.k8s.api.core.v1.";
  if (row.package == "events") prefix = "io.k8s.api.events.v1.";
  if (row.package == "coordination") prefix = "io.k8s.api.coordination.v1.";
  if (row.package == "autoscaling") prefix = "io.k8s.api.autoscaling.v1.";
  if (row.package == "apiextensions") {
    prefix = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";
  }
  return std::string(prefix) + std::string(row.name);
}

std::string definition_name(std::string_view group, std::string_view version,
                            std::string_view kind) {
  std::string name;
  while (!group.empty()) {
    const size_t dot = group.rfind('.');
    name += std::string(dot == std::string_view::npos ? group : group.substr(dot + 1)) + ".";
    group = dot == std::string_view::npos ? "" : group.substr(0, dot);
  }
  return name + std::string(version) + "." + std::string(kind);
}

Json reference_to(OpenApiVersion version, const std::string& definition) {
  const bool is_v2 = version == OpenApiVersion::kV2;
  return {{"$ref", (is_v2 ? "#/definitions/" : "#/components/schemas/") + definition}};
}

void add_definitions(OpenApiVersion version, const TypeRow& row, Json& definitions) {
  TypeWriter(version, definitions).add(row);
}

Json definition_of(OpenApiVersion version, const SchemaNode& schema) {
  Json definition = schema_of(version, schema);
  // In v2, an object that keeps unknown fields has no properties.
  if (version == OpenApiVersion::kV2 && schema.preserve_unknown) return definition;
  definition["properties"]["metadata"] =
      property_of(version, definition_name(*find_type("meta", "ObjectMeta")), kMetadataWords);
  add_type_members(definition);
  return definition;
}

void add_type_members(Json& definition) {
  Json& properties = definition["properties"];
  properties["apiVersion"] = {{"type", "string"}, {"description", kApiVersionWords}};
  properties["kind"] = {{"type", "string"}, {"description", kKindWords}};
}

Json group_version_kind(std::string_view group, std::string_view version, std::string_view kind) {
  return {{"group", group}, {"version", version}, {"kind", kind}};
}

}  // namespace lockstep::local
