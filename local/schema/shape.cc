#include <algorithm>
#include <utility>

#include "local/schema/built_in_types.h"
#include "local/schema/schema.h"

namespace lockstep::local {
namespace {

// True for members of the root and of embedded resources that exist whatever the schema says.
bool is_of_every_object(std::string_view name) {
  return name == "apiVersion" || name == "kind" || name == "metadata";
}

void prune_at(const SchemaNode& schema, Json& value, const std::string& path,
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
      prune_at(*member, it.value(), at, removed);
    } else if (!schema.preserve_unknown) {
      removed.push_back(at);
      it = object.erase(it);
      continue;
    }
    ++it;
  }
}

// Removes unknown fields from the metadata of an embedded resource.
void prune_metadata(Json& resource, const std::string& path, std::vector<std::string>& removed) {
  const auto metadata = resource.find("metadata");
  if (metadata == resource.end() || !metadata->is_object()) return;
  const TypeFields known = fields_of(*find_type("meta", "ObjectMeta"));
  for (auto it = metadata->begin(); it != metadata->end();) {
    const auto& fields = known.fields;
    const bool is_known = std::any_of(fields.begin(), fields.end(), [&](const TypeField& field) {
      return field.name == it.key();
    });
    if (!is_known) removed.push_back(path + ".metadata." + it.key());
    it = is_known ? std::next(it) : metadata->erase(it);
  }
}

void prune_at(const SchemaNode& schema, Json& value, const std::string& path,
              std::vector<std::string>& removed) {
  if (value.is_object()) {
    prune_object(schema, value, path, schema.embedded_resource, removed);
    if (schema.embedded_resource) prune_metadata(value, path, removed);
  } else if (value.is_array() && schema.items != nullptr) {
    for (size_t i = 0; i < value.size(); ++i) {
      prune_at(*schema.items, value[i], path + "[" + std::to_string(i) + "]", removed);
    }
  }
}

// Removes nulls of members that are not nullable, whatever their type: an API server treats them as
// absent.
void remove_nulls(const SchemaNode& schema, Json& object) {
  for (auto it = object.begin(); it != object.end();) {
    const SchemaNode* member = schema.member(it.key());
    const bool goes = it->is_null() && member != nullptr && !member->nullable;
    it = goes ? object.erase(it) : std::next(it);
  }
}

}  // namespace

std::vector<std::string> prune(const SchemaNode& schema, Json& object) {
  std::vector<std::string> removed;
  if (object.is_object()) prune_object(schema, object, "", true, removed);
  return removed;
}

void apply_defaults(const SchemaNode& schema, Json& object) {
  if (object.is_object()) {
    remove_nulls(schema, object);
    for (const auto& [name, property] : schema.properties) {
      if (property.default_value && !object.contains(name)) object[name] = *property.default_value;
    }
    for (auto& [name, value] : object.items()) {
      const SchemaNode* member = schema.member(name);
      if (member != nullptr) apply_defaults(*member, value);
    }
  } else if (object.is_array() && schema.items != nullptr) {
    for (Json& item : object) apply_defaults(*schema.items, item);
  }
}

}  // namespace lockstep::local
