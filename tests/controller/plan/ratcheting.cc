#include "tests/controller/plan/ratcheting.h"

#include <algorithm>
#include <string>

namespace lockstep::plan {
namespace {

// Returns the schema of an object's member; nullptr if it lists none.
const Json* schema_of_member(const Json& schema, std::string_view name) {
  const Json* properties = find_member(schema, "properties");
  const Json* member = properties == nullptr ? nullptr : find_member(*properties, name);
  return member != nullptr ? member : find_member(schema, "additionalProperties");
}

bool is_equal(const Json& schema, const Json& before, const Json& after) {
  if (before.is_array() && after.is_array()) {
    const std::string type = string_or(schema, "x-kubernetes-list-type", "");
    const Json* items = find_member(schema, "items");
    if (before.size() != after.size()) return false;
    if (!type.empty() || items == nullptr) return before == after;
    return std::equal(before.begin(), before.end(), after.begin(),
                      [&](const Json& a, const Json& b) { return is_equal(*items, a, b); });
  }
  if (!before.is_object() || !after.is_object()) return before == after;
  if (before.size() != after.size()) return false;
  for (const auto& [name, value] : after.items()) {
    const Json* old_value = find_member(before, name);
    const Json* member = schema_of_member(schema, name);
    if (old_value == nullptr || member == nullptr) return false;
    if (!is_equal(*member, *old_value, value)) return false;
  }
  return true;
}

}  // namespace

bool server_sees_unchanged(const Json& schema, std::string_view path, const Json& before,
                           const Json& after) {
  if (path.empty()) return is_equal(schema, before, after);
  const size_t dot = std::min(path.find('.'), path.size());
  std::string_view name = path.substr(0, dot);
  path.remove_prefix(std::min(dot + 1, path.size()));
  const bool is_list = name.ends_with("[]");
  if (is_list) name.remove_suffix(2);
  const Json* member = schema_of_member(schema, name);
  const Json* old_value = find_member(before, name);
  const Json* value = find_member(after, name);
  if (member == nullptr || old_value == nullptr || value == nullptr) {
    return is_equal(schema, before, after);
  }
  if (is_list) return is_equal(*member, *old_value, *value);
  return server_sees_unchanged(*member, path, *old_value, *value);
}

}  // namespace lockstep::plan
