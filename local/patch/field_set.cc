#include "local/patch/field_set.h"

#include <algorithm>

namespace lockstep::local {
namespace {

// Returns `[name="a",port=80]`.
std::string keys_text(std::string_view keys) {
  const Result<Json> parsed = parse_json(keys);
  if (!parsed.ok()) return std::string(keys);
  std::string text;
  for (const auto& [name, value] : parsed->items())
    text += (text.empty() ? "" : ",") + name + "=" + dump_json(value);
  return "[" + text + "]";
}

std::string element_text(const std::string& key) {
  const std::string rest = key.substr(2);
  switch (key[0]) {
    case 'f':
      return "." + rest;
    case 'k':
      return keys_text(rest);
    case 'v':
      return "[=" + rest + "]";
    default:
      return "[" + rest + "]";
  }
}

// Lists the fields of one level before those below them.
void append_paths(const Json& set, const std::string& prefix, std::vector<std::string>& paths) {
  for (const auto& [key, node] : set.items()) {
    if (key != kSelf && is_member(node)) paths.push_back(prefix + element_text(key));
  }
  for (const auto& [key, node] : set.items()) {
    if (key != kSelf && !node.empty()) append_paths(node, prefix + element_text(key), paths);
  }
}

// Returns the key in the form that we write.
Result<std::string> read_key(const std::string& key) {
  const Error wrong = invalid("\"" + key + "\" is not a valid key in a set of fields");
  if (key.size() < 2 || key[1] != ':') return wrong;
  if (key[0] == 'f') return key;
  const std::string_view rest = std::string_view(key).substr(2);
  if (key[0] == 'i') {
    const bool digits =
        !rest.empty() && rest.size() < 10 &&
        std::all_of(rest.begin(), rest.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) return wrong;
    return key;
  }
  if (key[0] != 'k' && key[0] != 'v') return wrong;
  const Result<Json> value = parse_json(rest);
  if (!value.ok() || (key[0] == 'k' && (!value->is_object() || value->empty()))) return wrong;
  return key.substr(0, 2) + dump_json(*value);
}

}  // namespace

bool is_member(const Json& node) {
  return node.empty() || node.contains(kSelf);
}

bool set_membership(Json& node, bool member) {
  const auto self = node.find(kSelf);
  const bool has_self = self != node.end();
  if (has_self && (!member || node.size() == 1)) node.erase(self);
  if (node.empty()) return member;
  if (member && !has_self) node[kSelf] = Json::object();
  return true;
}

void merge_into(Json& set, const Json& other) {
  for (auto it = other.begin(); it != other.end(); ++it) {
    if (it.key() == kSelf) continue;
    const auto found = set.find(it.key());
    if (found == set.end()) {
      set[it.key()] = *it;
      continue;
    }
    const bool member = is_member(*found) || is_member(*it);
    merge_into(*found, *it);
    set_membership(*found, member);
  }
}

void subtract(Json& set, const Json& other) {
  for (auto it = other.begin(); it != other.end(); ++it) {
    if (it.key() == kSelf) continue;
    const auto found = set.find(it.key());
    if (found == set.end()) continue;
    const bool member = is_member(*found) && !is_member(*it);
    subtract(*found, *it);
    if (!set_membership(*found, member)) set.erase(found);
  }
}

Json intersect(const Json& a, const Json& b) {
  Json common = Json::object();
  for (auto it = a.begin(); it != a.end(); ++it) {
    if (it.key() == kSelf) continue;
    const auto found = b.find(it.key());
    if (found == b.end()) continue;
    Json child = intersect(*it, *found);
    if (set_membership(child, is_member(*it) && is_member(*found)))
      common[it.key()] = std::move(child);
  }
  return common;
}

const Json* child_of(const Json* set, const std::string& key) {
  return set == nullptr ? nullptr : find_member(*set, key);
}

std::vector<std::string> field_paths(const Json& set) {
  std::vector<std::string> paths;
  append_paths(set, "", paths);
  return paths;
}

Result<Json> read_field_set(const Json& fields) {
  if (!fields.is_object()) return invalid("expected a set of fields that is an object");
  Json set = Json::object();
  for (const auto& [key, value] : fields.items()) {
    if (key == kSelf) continue;
    TRY_ASSIGN(const std::string name, read_key(key));
    TRY_ASSIGN(Json node, read_field_set(value));
    set_membership(node, value.empty() || value.contains(kSelf));
    if (set.contains(name)) return invalid("\"" + key + "\" appears twice in a set of fields");
    set[name] = std::move(node);
  }
  return set;
}

}  // namespace lockstep::local
