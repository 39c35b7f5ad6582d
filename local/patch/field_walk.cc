#include "local/patch/field_walk.h"

#include <unordered_set>

#include "local/patch/field_set.h"
#include "local/patch/json_size.h"

namespace lockstep::local {
namespace {

constexpr size_t kProblemsMax = 10;
constexpr size_t kShownMax = 100;  // characters shown of a value of the wrong type

const Json::object_t& members_of(const Json& object) {
  return object.get_ref<const Json::object_t&>();
}

bool is_root_metadata(const Shape& shape, const std::string& name) {
  return name == "metadata" && shape.is_server_owned("apiVersion");
}

void attach(Json& set, const std::string& key, Json node) {
  if (!node.is_null()) set[key] = std::move(node);
}

// Returns a node of a set; null if neither it nor anything below it is in the set.
Json node_of(Json children, bool member) {
  return set_membership(children, member) ? children : Json();
}

// Returns the set of all parts of a granular value.
Json all_parts(const Shape& shape, const Json& value);

Json whole(const Shape& shape, const Json& value) {
  return node_of(shape.is_granular(value) ? all_parts(shape, value) : Json::object(), true);
}

Json whole_member(const Shape& object, const std::string& name, const Json& value) {
  const Shape shape = object.member(name);
  if (is_root_metadata(object, name)) return node_of(all_parts(shape, value), false);
  return whole(shape, value);
}

Json all_parts(const Shape& shape, const Json& value) {
  Json set = Json::object();
  if (value.is_object()) {
    for (const auto& [name, member] : members_of(value)) {
      if (!shape.is_server_owned(name)) attach(set, "f:" + name, whole_member(shape, name, member));
    }
  } else if (value.is_array()) {
    const auto index = ElementIndex::of(shape, value);
    if (!index) return set;
    for (const auto& [key, element] : index->order) set[key] = whole(shape.item(), *element);
  }
  return set;
}

// The changes of one value as nodes of sets; a node is null if there is no such change.
struct NodeChanges {
  Json added, modified, removed;
};

void attach(NodeChanges& changes, const std::string& key, NodeChanges below) {
  attach(changes.added, key, std::move(below.added));
  attach(changes.modified, key, std::move(below.modified));
  attach(changes.removed, key, std::move(below.removed));
}

// The values must differ.
NodeChanges compare_values(const Shape& shape, const Json& before, const Json& after);

NodeChanges compare_objects(const Shape& shape, const Json& before, const Json& after) {
  NodeChanges changes;
  auto left = members_of(before).begin(), left_end = members_of(before).end();
  auto right = members_of(after).begin(), right_end = members_of(after).end();
  while (left != left_end || right != right_end) {
    const int order = left == left_end     ? 1
                      : right == right_end ? -1
                                           : left->first.compare(right->first);
    const std::string& name = order <= 0 ? left->first : right->first;
    if (!shape.is_server_owned(name)) {
      if (order < 0) {
        attach(changes.removed, "f:" + name, whole_member(shape, name, left->second));
      } else if (order > 0) {
        attach(changes.added, "f:" + name, whole_member(shape, name, right->second));
      } else if (left->second != right->second) {
        attach(changes, "f:" + name,
               compare_values(shape.member(name), left->second, right->second));
      }
    }
    if (order <= 0) ++left;
    if (order >= 0) ++right;
  }
  return changes;
}

// Returns the changes for values that can't be compared part by part.
NodeChanges replaced(const Shape& shape, const Json& before, const Json& after) {
  NodeChanges changes;
  changes.modified = Json::object();
  if (shape.is_granular(before)) changes.removed = node_of(all_parts(shape, before), false);
  if (shape.is_granular(after)) changes.added = node_of(all_parts(shape, after), false);
  return changes;
}

NodeChanges compare_lists(const Shape& shape, const Json& before, const Json& after) {
  NodeChanges changes;
  const auto left = ElementIndex::of(shape, before), right = ElementIndex::of(shape, after);
  if (!left || !right) return replaced(shape, before, after);
  const Shape item = shape.item();
  for (const auto& [key, element] : left->order) {
    if (const Json* other = right->find(key)) {
      if (*element != *other) attach(changes, key, compare_values(item, *element, *other));
    } else {
      attach(changes.removed, key, whole(item, *element));
    }
  }
  for (const auto& [key, element] : right->order) {
    if (left->find(key) == nullptr) attach(changes.added, key, whole(item, *element));
  }
  return changes;
}

NodeChanges compare_values(const Shape& shape, const Json& before, const Json& after) {
  const bool parts_before = shape.is_granular(before), parts_after = shape.is_granular(after);
  if (parts_before && parts_after && before.is_object() && after.is_object())
    return compare_objects(shape, before, after);
  if (parts_before && parts_after && before.is_array() && after.is_array())
    return compare_lists(shape, before, after);
  return replaced(shape, before, after);
}

Json set_of(Json node) {
  return node.is_null() ? Json::object() : std::move(node);
}

// Returns a node; null if the intent sets nothing here. `member` puts the node itself into the set,
// even if it has no parts.
Json intended_node(const Shape& shape, const Json& value, bool member) {
  if (!shape.is_granular(value)) return Json::object();
  Json set = Json::object();
  if (value.is_object()) {
    for (const auto& [name, part] : members_of(value)) {
      if (shape.is_server_owned(name)) continue;
      const bool empty = part.is_object() && part.empty();
      attach(set, "f:" + name,
             intended_node(shape.member(name), part, empty || !shape.names(name)));
    }
  } else if (const auto index = ElementIndex::of(shape, value)) {
    for (const auto& [key, element] : index->order)
      set[key] = intended_node(shape.item(), *element, true);
  }
  return node_of(std::move(set), member);
}

class IntentCheck {
 public:
  void walk(const Shape& shape, const Json& value, const std::string& path);

  std::vector<std::string> problems;

 private:
  void walk_list(const Shape& shape, const Json& list, const std::string& path);
  void report(const std::string& path, const std::string& message) {
    if (problems.size() < kProblemsMax) problems.push_back(path + ": " + message);
  }
};

void IntentCheck::walk(const Shape& shape, const Json& value, const std::string& path) {
  if (problems.size() >= kProblemsMax) return;
  if (const std::string expected = shape.mismatch(value); !expected.empty()) {
    report(path, "expected " + expected +
                     ", got &value.valueUnstructured{Value:" + go_text(value, kShownMax) + "}");
    return;
  }
  if (value.is_array()) return walk_list(shape, value, path);
  if (!value.is_object()) return;
  for (const auto& [name, member] : members_of(value)) {
    if (shape.knows(name)) {
      walk(shape.member(name), member, path + "." + name);
    } else {
      report(path + "." + name, "field not declared in schema");
    }
  }
}

void IntentCheck::walk_list(const Shape& shape, const Json& list, const std::string& path) {
  const bool keyed = shape.is_granular(list);
  std::unordered_set<std::string> seen;
  for (size_t i = 0; i < list.size() && problems.size() < kProblemsMax; ++i) {
    std::string below = path + "[" + std::to_string(i) + "]";
    if (keyed) {
      const Result<std::string> key = shape.element_key(list[i]);
      if (!key.ok()) {
        report(path, "element " + std::to_string(i) + ": " + key.error().message);
        continue;
      }
      const std::string text = field_paths({{*key, Json::object()}}).front();
      if (!seen.insert(*key).second) report(path, "duplicate entries for key " + text);
      below = path + text;
    }
    walk(shape.item(), list[i], below);
  }
}

Json merge_objects(const Shape& shape, const Json& live, const Json& intent) {
  Json merged = live;
  for (const auto& [name, wanted] : members_of(intent)) {
    const auto found = merged.find(name);
    if (found == merged.end()) {
      merged[name] = wanted;
    } else {
      *found = merge_intent(shape.member(name), *found, wanted);
    }
  }
  return merged;
}

// Walks both orders in parallel. `next` is the intent's next element that is also in the live list.
// Elements that are only in the live list come before it.
Json merge_lists(const Shape& shape, const ElementIndex& live, const ElementIndex& intent) {
  const Shape item = shape.item();
  Json merged = Json::array();
  size_t taken = 0, next = 0;
  const auto take_live = [&](const std::string* until) {
    for (; taken < live.order.size(); ++taken) {
      const auto& [key, element] = live.order[taken];
      if (until != nullptr && key == *until) return;
      if (intent.find(key) == nullptr) merged.push_back(*element);
    }
  };
  for (size_t i = 0; i < intent.order.size(); ++i) {
    const auto& [key, wanted] = intent.order[i];
    if (next < i) next = i;
    while (next < intent.order.size() && live.find(intent.order[next].first) == nullptr) ++next;
    take_live(next < intent.order.size() ? &intent.order[next].first : nullptr);
    const Json* element = live.find(key);
    merged.push_back(element == nullptr ? *wanted : merge_intent(item, *element, *wanted));
    if (next == i && taken < live.order.size() && live.order[taken].first == key) ++taken;
  }
  take_live(nullptr);
  return merged;
}

// Removes fields from one part of a container. Returns false if nothing is left of it. A field that
// the schema names stays if `kept` has it or anything below it. A map entry or a list element stays
// only if `kept` has the entry or element itself.
bool keep_part(const Shape& shape, bool named, Json& value, const Json& last, const Json* kept) {
  const bool owned = kept != nullptr && (named || is_member(*kept));
  if (!owned && is_member(last)) return false;
  if (!shape.is_granular(value) || value.empty()) return true;
  static const Json kNothing = Json::object();
  remove_fields(shape, value, last, kept == nullptr ? kNothing : *kept);
  return !value.empty() || (kept != nullptr && is_member(*kept));
}

}  // namespace

FieldChanges compare_fields(const Shape& shape, const Json& before, const Json& after) {
  if (before == after) return {};
  NodeChanges changes = compare_values(shape, before, after);
  return {set_of(std::move(changes.added)), set_of(std::move(changes.modified)),
          set_of(std::move(changes.removed))};
}

Json intended_fields(const Shape& shape, const Json& intent) {
  return set_of(intended_node(shape, intent, false));
}

std::vector<std::string> intent_problems(const Shape& shape, const Json& intent) {
  IntentCheck check;
  check.walk(shape, intent, "");
  return std::move(check.problems);
}

Json merge_intent(const Shape& shape, const Json& live, const Json& intent) {
  const bool parts = shape.is_granular(live) && !live.empty();
  // Null keeps the parts that the object or list has.
  if (parts && intent.is_null()) return live;
  if (!parts || !shape.is_granular(intent)) return intent;
  if (live.is_object() && intent.is_object()) return merge_objects(shape, live, intent);
  if (!live.is_array() || !intent.is_array()) return intent;
  const auto before = ElementIndex::of(shape, live), wanted = ElementIndex::of(shape, intent);
  return before && wanted ? merge_lists(shape, *before, *wanted) : intent;
}

void remove_fields(const Shape& shape, Json& value, const Json& last, const Json& kept) {
  if (value.is_object()) {
    for (auto it = value.begin(); it != value.end();) {
      const std::string key = "f:" + it.key();
      const Json* was = child_of(&last, key);
      const bool keep = was == nullptr || keep_part(shape.member(it.key()), shape.names(it.key()),
                                                    *it, *was, child_of(&kept, key));
      it = keep ? std::next(it) : value.erase(it);
    }
  } else if (value.is_array()) {
    Json left = Json::array();
    for (Json& element : value) {
      const Result<std::string> key = shape.element_key(element);
      const Json* was = key.ok() ? child_of(&last, *key) : nullptr;
      if (was == nullptr || keep_part(shape.item(), false, element, *was, child_of(&kept, *key)))
        left.push_back(std::move(element));
    }
    value = std::move(left);
  }
}

}  // namespace lockstep::local
