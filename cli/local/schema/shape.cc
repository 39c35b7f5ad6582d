#include <algorithm>

#include "cli/local/schema/schema.h"

namespace lockstep::local {
namespace {

// What an object has whatever its schema says: at the root, and in embedded resources.
bool is_of_every_object(std::string_view name) {
  return name == "apiVersion" || name == "kind" || name == "metadata";
}

void prune_at(const SchemaNode& schema, Json& value, const std::string& path, bool is_resource,
              std::vector<std::string>& removed);

void prune_object(const SchemaNode& schema, Json& object, const std::string& path, bool is_resource,
                  std::vector<std::string>& removed) {
  for (auto it = object.begin(); it != object.end();) {
    if (is_resource && is_of_every_object(it.key())) {
      ++it;
      continue;
    }
    const std::string at = path.empty() ? it.key() : path + "." + it.key();
    const SchemaNode* member = schema.member(it.key());
    if (member != nullptr) {
      prune_at(*member, it.value(), at, member->embedded_resource, removed);
    } else if (!schema.preserve_unknown) {
      removed.push_back(at);
      it = object.erase(it);
      continue;
    }
    ++it;
  }
}

void prune_at(const SchemaNode& schema, Json& value, const std::string& path, bool is_resource,
              std::vector<std::string>& removed) {
  if (value.is_object()) {
    prune_object(schema, value, path, is_resource, removed);
  } else if (value.is_array() && schema.items != nullptr) {
    for (size_t i = 0; i < value.size(); ++i) {
      prune_at(*schema.items, value[i], path + "[" + std::to_string(i) + "]",
               schema.items->embedded_resource, removed);
    }
  }
}

// A null of a member that can't be null and has a default counts as absent.
bool is_replaced(const SchemaNode& schema, const Json& value) {
  return value.is_null() && !schema.nullable && schema.default_value;
}

}  // namespace

std::vector<std::string> prune(const SchemaNode& schema, Json& object) {
  std::vector<std::string> removed;
  prune_at(schema, object, "", true, removed);
  return removed;
}

void apply_defaults(const SchemaNode& schema, Json& object) {
  if (object.is_object()) {
    for (const auto& [name, property] : schema.properties) {
      if (!property.default_value) continue;
      const auto it = object.find(name);
      if (it == object.end() || is_replaced(property, *it)) object[name] = *property.default_value;
    }
    for (auto& [name, value] : object.items()) {
      const SchemaNode* member = schema.member(name);
      if (member == nullptr) continue;
      if (is_replaced(*member, value)) value = *member->default_value;
      apply_defaults(*member, value);
    }
  } else if (object.is_array() && schema.items != nullptr) {
    for (Json& item : object) {
      if (is_replaced(*schema.items, item)) item = *schema.items->default_value;
      apply_defaults(*schema.items, item);
    }
  }
}

}  // namespace lockstep::local
