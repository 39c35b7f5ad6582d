#include <mutex>

#include "cli/local/schema/built_in_types.h"
#include "cli/local/schema/schema.h"

namespace lockstep::local {
namespace {

constexpr int kDepthMax = 24;

std::string_view take_until(std::string_view& text, std::string_view stops) {
  const size_t end = std::min(text.find_first_of(stops), text.size());
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(end);
  return head;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    parts.emplace_back(take_until(text, std::string_view(&separator, 1)));
    if (!text.empty()) text.remove_prefix(1);
  }
  return parts;
}

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

// `[]Container/name!`: what follows the type says how it merges.
void fill_list(std::string_view package, std::string_view item, std::string_view marks, int depth,
               SchemaNode& node) {
  node.type = "array";
  node.items = std::make_unique<SchemaNode>();
  fill_type(package, item, depth, *node.items);
  while (!marks.empty()) {
    const char mark = marks.front();
    marks.remove_prefix(1);
    const std::string_view word = take_until(marks, "/@+!");
    if (mark == '/') {
      node.merges = true;
      node.merge_key = word;
      node.list_type = word.empty() ? ListType::kSet : ListType::kMap;
      if (!word.empty()) node.list_keys = {std::string(word)};
    } else if (mark == '@') {
      node.list_type = ListType::kMap;
      node.list_keys = split(word, ',');
    }
  }
}

void fill_object(const TypeRow& row, int depth, SchemaNode& node) {
  node.type = "object";
  node.preserve_unknown = true;
  if (depth > kDepthMax) return;
  for (const std::string& field : split(row.fields, ' ')) {
    if (field == "~") {
      node.atomic_object = true;
      continue;
    }
    std::string_view rest = field;
    const std::string_view name = take_until(rest, ":");
    rest.remove_prefix(1);
    if (rest.back() == '!') node.required.emplace_back(name);
    SchemaNode& member = node.properties[std::string(name)];
    const std::string_view type = take_until(rest, "/@!~");
    if (type.starts_with("[]")) {
      fill_list(row.package, type.substr(2), rest, depth + 1, member);
    } else {
      fill_type(row.package, type, depth + 1, member);
      member.atomic_object |= rest.starts_with("~");
    }
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

// The package of a group's types; "" for a group that has none here.
std::string_view package_of(std::string_view api_version) {
  if (api_version == "v1") return "core";
  if (api_version == "events.k8s.io/v1") return "events";
  if (api_version == "coordination.k8s.io/v1") return "coordination";
  if (api_version == "apiextensions.k8s.io/v1") return "apiextensions";
  if (api_version == "autoscaling/v1") return "autoscaling";
  return "";
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
  static std::mutex mutex;  // guards made
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
