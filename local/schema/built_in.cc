#include <mutex>

#include "local/schema/built_in_types.h"
#include "local/schema/schema.h"

namespace lockstep::local {
namespace {

// Types refer to each other, but not in cycles. This bounds the cost of a mistake in the table.
constexpr int kDepthMax = 24;

void fill_type(std::string_view package, std::string_view type, int depth, SchemaNode& node);

void fill_scalar(std::string_view type, SchemaNode& node) {
  node.type = "string";
  if (type == "bool") {
    node.type = "boolean";
  } else if (type == "int32" || type == "int64") {
    node.type = "integer";
    node.format = type;
  } else if (type == "double") {
    node.type = "number";
    node.format = type;
  } else if (type == "bytes") {
    node.format = "byte";
  } else if (type == "time") {
    node.format = "date-time";
  } else if (type == "quantity" || type == "intOrString") {
    node.type = "";
    node.preserve_unknown = true;
  }
}

void fill_field(std::string_view package, const TypeField& field, int depth, SchemaNode& node) {
  if (!field.is_list) {
    fill_type(package, field.type, depth, node);
    node.atomic_object |= field.is_atomic;
    if (!field.default_text.empty()) node.default_value = field.default_text;
    return;
  }
  node.type = "array";
  node.nullable = true;
  node.items = std::make_unique<SchemaNode>();
  fill_type(package, field.type, depth, *node.items);
  node.merges = field.is_merged;
  node.merge_key = field.merge_key;
  node.list_keys.assign(field.list_keys.begin(), field.list_keys.end());
  if (!node.list_keys.empty()) {
    node.list_type = ListType::kMap;
  } else if (field.is_merged) {
    node.list_type = ListType::kSet;
  }
}

void fill_object(const TypeRow& row, int depth, SchemaNode& node) {
  node.type = "object";
  node.preserve_unknown = true;
  if (depth > kDepthMax) return;
  const TypeFields type = fields_of(row);
  node.atomic_object = type.is_atomic;
  for (const TypeField& field : type.fields) {
    if (field.is_required) node.required.emplace_back(field.name);
    fill_field(row.package, field, depth + 1, node.properties[std::string(field.name)]);
  }
}

void fill_type(std::string_view package, std::string_view type, int depth, SchemaNode& node) {
  node.nullable = true;
  if (type == "any") {
    node.preserve_unknown = true;
  } else if (type.starts_with("map[")) {
    node.type = "object";
    node.additional = std::make_unique<SchemaNode>();
    fill_type(package, type.substr(4, type.size() - 5), depth, *node.additional);
  } else if (const TypeRow* row = find_type(package, type)) {
    fill_object(*row, depth, node);
  } else {
    fill_scalar(type, node);
  }
}

std::shared_ptr<const SchemaNode> make(const TypeRow* row) {
  auto node = std::make_shared<SchemaNode>();
  if (row != nullptr) {
    fill_object(*row, 1, *node);
  } else {
    node->type = "object";
    node->preserve_unknown = true;
    fill_type("meta", "ObjectMeta", 1, node->properties["metadata"]);
  }
  return node;
}

}  // namespace

std::shared_ptr<const SchemaNode> built_in_schema(std::string_view api_version,
                                                  std::string_view kind) {
  static std::mutex mutex;  // guards `made`
  static std::map<const TypeRow*, std::shared_ptr<const SchemaNode>> made;
  const std::string_view package = package_of(api_version);
  const TypeRow* row = package.empty() ? nullptr : find_type(package, kind);
  if (row != nullptr && row->package != package) row = nullptr;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const SchemaNode>& schema = made[row];
  if (schema == nullptr) schema = make(row);
  return schema;
}

}  // namespace lockstep::local
