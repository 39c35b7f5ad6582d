#include "local/patch/shape.h"

#include <algorithm>
#include <array>
#include <memory>

namespace lockstep::local {
namespace {

std::unique_ptr<SchemaNode> any_value() {
  auto node = std::make_unique<SchemaNode>();
  node->preserve_unknown = true;
  return node;
}

// Source: k8s.io/apimachinery, pkg/apis/meta/v1, ObjectMeta.
SchemaNode object_meta() {
  SchemaNode meta;
  meta.type = "object";
  for (const char* name :
       {"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation",
        "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "clusterName",
        "managedFields"})
    meta.properties[name].preserve_unknown = true;
  for (const char* name : {"labels", "annotations"}) {
    SchemaNode& map = meta.properties[name];
    map.type = "object";
    map.additional = any_value();
  }
  SchemaNode& finalizers = meta.properties["finalizers"];
  finalizers.type = "array";
  finalizers.items = any_value();
  finalizers.list_type = ListType::kSet;
  SchemaNode& owners = meta.properties["ownerReferences"];
  owners.type = "array";
  owners.list_type = ListType::kMap;
  owners.list_keys = {"uid"};
  owners.items = std::make_unique<SchemaNode>();
  owners.items->atomic_object = true;
  owners.items->preserve_unknown = true;
  return meta;
}

const SchemaNode& metadata_schema() {
  static const SchemaNode kSchema = object_meta();
  return kSchema;
}

// Source: k8s.io/apimachinery, pkg/util/managedfields, the set that is stripped from every manager.
constexpr std::array<std::string_view, 9> kServerOwned = {
    "name",       "namespace",       "creationTimestamp", "selfLink",   "uid",
    "generation", "resourceVersion", "managedFields",     "clusterName"};

bool is_any(const SchemaNode& schema) {
  return schema.preserve_unknown ||
         (schema.type.empty() && schema.properties.empty() && schema.additional == nullptr);
}

}  // namespace

Shape Shape::member(const std::string& name) const {
  if (is_root_ && name == "metadata") return Shape(&metadata_schema(), false, true);
  if (schema_ == nullptr) return Shape(nullptr, false);
  const auto found = schema_->properties.find(name);
  return Shape(found == schema_->properties.end() ? schema_->additional.get() : &found->second,
               false);
}

Shape Shape::item() const {
  return Shape(schema_ == nullptr ? nullptr : schema_->items.get(), false);
}

bool Shape::names(const std::string& name) const {
  if (is_root_ && (name == "metadata" || name == "apiVersion" || name == "kind")) return true;
  return schema_ != nullptr && schema_->properties.contains(name);
}

bool Shape::knows(const std::string& name) const {
  return names(name) || schema_ == nullptr || is_any(*schema_) || schema_->additional != nullptr ||
         (schema_->properties.empty() && !is_root_);
}

std::string Shape::mismatch(const Json& value) const {
  if (schema_ == nullptr || value.is_null() || schema_->int_or_string) return "";
  const std::string& type = schema_->type;
  if (type == "object") return value.is_object() ? "" : "map";
  if (type == "array") return value.is_array() ? "" : "list";
  if (type == "string") return value.is_string() ? "" : "string";
  if (type == "boolean") return value.is_boolean() ? "" : "boolean";
  if (type == "integer" || type == "number")
    return value.is_number() ? "" : "numeric (int or float)";
  return "";
}

bool Shape::is_server_owned(const std::string& name) const {
  if (is_root_) return name == "apiVersion" || name == "kind";
  return is_metadata_ &&
         std::find(kServerOwned.begin(), kServerOwned.end(), name) != kServerOwned.end();
}

bool Shape::is_granular(const Json& value) const {
  if (value.is_object()) return schema_ == nullptr || !schema_->atomic_object;
  return value.is_array() && schema_ != nullptr && schema_->list_type != ListType::kAtomic;
}

Result<std::string> Shape::element_key(const Json& element) const {
  if (schema_->list_type == ListType::kSet) {
    if (element.is_structured())
      return invalid("associative list without keys has an element that's a " +
                     std::string(element.is_object() ? "map" : "list") + " type");
    return "v:" + dump_json(element);
  }
  if (!element.is_object())
    return invalid("associative list with keys may not have non-map elements");
  Json keys = Json::object();
  for (const std::string& name : schema_->list_keys) {
    const Json* value = find_member(element, name);
    if (value == nullptr && schema_->items != nullptr) {
      const auto key_schema = schema_->items->properties.find(name);
      if (key_schema != schema_->items->properties.end() && key_schema->second.default_value)
        value = &*key_schema->second.default_value;
    }
    if (value == nullptr)
      return invalid("associative list with keys has an element that omits key field \"" + name +
                     "\" (and doesn't have default value)");
    keys[name] = *value;
  }
  return "k:" + dump_json(keys);
}

std::optional<ElementIndex> ElementIndex::of(const Shape& list, const Json& elements) {
  ElementIndex index;
  for (const Json& element : elements) {
    Result<std::string> key = list.element_key(element);
    if (!key.ok()) return std::nullopt;
    if (index.by_key.emplace(*key, &element).second)
      index.order.emplace_back(*std::move(key), &element);
  }
  return index;
}

const Json* ElementIndex::find(const std::string& key) const {
  const auto found = by_key.find(key);
  return found == by_key.end() ? nullptr : found->second;
}

}  // namespace lockstep::local
