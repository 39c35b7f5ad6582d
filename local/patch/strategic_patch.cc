#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "local/patch/json_size.h"
#include "local/patch/patch.h"

namespace lockstep::local {
namespace {

constexpr std::string_view kPatch = "$patch";
constexpr std::string_view kRetainKeys = "$retainKeys";
constexpr std::string_view kDeletePrefix = "$deleteFromPrimitiveList/";
constexpr std::string_view kOrderPrefix = "$setElementOrder/";

using Failure = std::optional<PatchError>;

bool is_directive(std::string_view key) {
  return key == kPatch || key == kRetainKeys || key.starts_with(kDeletePrefix) ||
         key.starts_with(kOrderPrefix);
}

PatchError malformed(std::string message) {
  return {400, std::move(message)};
}
PatchError refused(std::string message) {
  return {422, std::move(message)};
}

PatchError no_merge_key(const Json& element, const std::string& merge_key) {
  return refused("map: " + go_text(element) + " does not contain declared merge key: " + merge_key);
}

PatchError unknown_patch_type(const Json& directive, const Json& where) {
  return malformed("unknown patch type: " + go_text(directive) + " in map: " + go_text(where));
}

// Reduces a patch to the value it creates where none existed: removes directives and nulls. Returns
// false if the patch deletes the value.
bool strip(Json& value) {
  if (value.is_array()) {
    Json kept = Json::array();
    for (Json& element : value) {
      const bool only_directive =
          element.is_object() && element.size() == 1 && element.contains(kPatch);
      if (!only_directive && strip(element)) kept.push_back(std::move(element));
    }
    value = std::move(kept);
    return true;
  }
  if (!value.is_object()) return true;
  if (value.value(kPatch, Json()) == "delete") return false;
  Json kept = Json::object();
  for (auto& [key, member] : value.items()) {
    if (!is_directive(key) && !member.is_null() && strip(member)) kept[key] = std::move(member);
  }
  value = std::move(kept);
  return true;
}

// Identifies the elements of one list: by the value of the merge key or, without one, by their own
// value.
struct Identity {
  const std::string& merge_key;

  // Returns "" if the element has no identity; JSON text is never empty.
  std::string of(const Json& element) const {
    if (merge_key.empty()) return element.is_structured() ? "" : dump_json(element);
    const Json* key = find_member(element, merge_key);
    return key == nullptr ? "" : dump_json(*key);
  }
};

// The first index of each identity in a list.
using Positions = std::unordered_map<std::string, size_t>;

Positions positions(const Json& list, const Identity& identity) {
  Positions first;
  for (size_t i = 0; i < list.size(); ++i) first.emplace(identity.of(list[i]), i);
  return first;
}

std::optional<size_t> place_in(const Positions& positions, const std::string& id) {
  const auto found = positions.find(id);
  return found == positions.end() ? std::nullopt : std::optional(found->second);
}

// Sorts `merged`: wished elements keep the wished order, the others the live order. Where an
// element of each could be next, the one earlier in the live list comes first, else the wished one.
Json in_order(Json merged, const Positions& wished, const Positions& live,
              const Identity& identity) {
  struct Item {
    Json* value;
    size_t rank;                 // index in its own order
    std::optional<size_t> live;  // index in the live order
  };
  std::vector<Item> named, others;
  for (Json& element : merged) {
    const std::string id = identity.of(element);
    const std::optional<size_t> wish = place_in(wished, id), before = place_in(live, id);
    if (wish) {
      named.push_back({&element, *wish, before});
    } else {
      others.push_back({&element, before.value_or(SIZE_MAX), before});
    }
  }
  const auto by_rank = [](const Item& a, const Item& b) { return a.rank < b.rank; };
  std::stable_sort(named.begin(), named.end(), by_rank);
  std::stable_sort(others.begin(), others.end(), by_rank);
  const auto other_is_next = [](const Item& other, const Item& name) {
    return other.live && name.live && *other.live < *name.live;
  };
  Json result = Json::array();
  size_t i = 0, j = 0;
  while (i < others.size() || j < named.size()) {
    const bool other =
        j == named.size() || (i < others.size() && other_is_next(others[i], named[j]));
    result.push_back(std::move(*(other ? others[i++] : named[j++]).value));
  }
  return result;
}

Failure check_elements(const Json& live, const Json& patch, const std::string& merge_key) {
  for (const Json* list : {&live, &patch}) {
    for (const Json& element : *list) {
      if (element.is_array()) return refused("lists of lists are not supported");
      if (element.is_object() == merge_key.empty()) {
        if (element.is_object())
          return refused("cannot merge lists without merge key for type map");
        return refused("list element types are not identical: [" + go_text(live) + " " +
                       go_text(patch) + "]");
      }
    }
  }
  return std::nullopt;
}

const SchemaNode* member_of(const SchemaNode* schema, std::string_view name) {
  return schema == nullptr ? nullptr : schema->member(name);
}

bool merges(const SchemaNode* list_schema) {
  return list_schema != nullptr && list_schema->merges;
}

Failure merge_object(const SchemaNode* schema, Json& object, Json patch);

// Applies `$retainKeys`: removes members that it does not name. The patch itself must hold no
// others.
Failure retain_keys(Json& object, Json& patch) {
  const auto found = patch.find(kRetainKeys);
  if (found == patch.end()) return std::nullopt;
  const PatchError wrong = malformed("invalid patch format of retainKeys");
  if (!found->is_array()) return wrong;
  std::unordered_set<std::string> retained;
  for (const Json& key : *found) {
    if (!key.is_string()) return wrong;
    retained.insert(key.get<std::string>());
  }
  patch.erase(found);
  for (const auto& [key, value] : patch.items()) {
    if (!value.is_null() && !is_directive(key) && !retained.contains(key)) return wrong;
  }
  for (auto it = object.begin(); it != object.end();)
    it = retained.contains(it.key()) ? std::next(it) : object.erase(it);
  return std::nullopt;
}

Failure delete_values(Json& object, const std::string& name, const Json& values) {
  const PatchError wrong = malformed("invalid patch format of primitive list");
  if (!values.is_array()) return wrong;
  std::unordered_set<std::string> deleted;
  for (const Json& value : values) {
    if (value.is_structured()) return wrong;
    deleted.insert(dump_json(value));
  }
  const auto list = object.find(name);
  if (list == object.end() || !list->is_array()) return std::nullopt;
  Json kept = Json::array();
  for (Json& element : *list) {
    if (element.is_structured() || !deleted.contains(dump_json(element)))
      kept.push_back(std::move(element));
  }
  *list = std::move(kept);
  return std::nullopt;
}

void merge_values(Json& list, Json patch) {
  const Identity identity{""};
  const Positions live = positions(list, identity), wished = positions(patch, identity);
  Positions all = live;
  for (Json& value : patch) {
    if (all.emplace(identity.of(value), list.size()).second) list.push_back(std::move(value));
  }
  list = in_order(std::move(list), wished, live, identity);
}

// The elements of a patch's list, grouped by directive.
struct ElementPatches {
  Json merged = Json::array();
  std::unordered_set<std::string> deleted;
  bool replace = false;  // replace the whole list with `merged`
};

std::variant<ElementPatches, PatchError> sort_elements(Json patch, const Identity& identity) {
  ElementPatches sorted;
  for (Json& element : patch) {
    const Json* found = find_member(element, kPatch);
    const Json directive = found == nullptr ? Json() : *found;
    if (directive == "replace") {
      sorted.replace = true;
      continue;
    }
    if (directive == "merge") return refused("merging lists cannot yet be specified in the patch");
    if (found != nullptr && directive != "delete") return unknown_patch_type(directive, element);
    std::string id = identity.of(element);
    if (id.empty()) return no_merge_key(element, identity.merge_key);
    if (found != nullptr) {
      sorted.deleted.insert(std::move(id));
    } else {
      sorted.merged.push_back(std::move(element));
    }
  }
  return sorted;
}

Failure merge_elements(const SchemaNode& schema, Json& list, Json patch) {
  const Identity identity{schema.merge_key};
  auto sorted = sort_elements(std::move(patch), identity);
  if (auto* error = std::get_if<PatchError>(&sorted)) return *error;
  auto& [merged, deleted, replace] = std::get<ElementPatches>(sorted);
  if (replace) {
    strip(merged);
    list = std::move(merged);
    return std::nullopt;
  }
  Json kept = Json::array();
  for (Json& element : list) {
    if (!deleted.contains(identity.of(element))) kept.push_back(std::move(element));
  }
  const Positions live = positions(kept, identity), wished = positions(merged, identity);
  Positions all = live;
  for (Json& element : merged) {
    const auto [found, is_new] = all.emplace(identity.of(element), kept.size());
    if (is_new) {
      strip(element);
      kept.push_back(std::move(element));
    } else if (auto error =
                   merge_object(schema.items.get(), kept[found->second], std::move(element))) {
      return error;
    }
  }
  list = in_order(std::move(kept), wished, live, identity);
  return std::nullopt;
}

Failure merge_list(const SchemaNode* schema, Json& list, Json patch) {
  if (!merges(schema)) {
    strip(patch);
    list = std::move(patch);
    return std::nullopt;
  }
  if (auto error = check_elements(list, patch, schema->merge_key)) return error;
  if (!schema->merge_key.empty()) return merge_elements(*schema, list, std::move(patch));
  merge_values(list, std::move(patch));
  return std::nullopt;
}

// Checks that the patch's elements are in the order of the directive.
Failure check_order(const Json& patch, const Json& order, const Identity& identity) {
  const Positions places = positions(order, identity);
  size_t at_least = 0;
  for (const Json& element : patch) {
    if (element.is_object() && element.contains(kPatch)) continue;
    const std::optional<size_t> place = place_in(places, identity.of(element));
    if (!place || *place < at_least) {
      return malformed("The order in patch list:\n" + go_text(patch) + "\n doesn't match " +
                       std::string(kOrderPrefix.substr(0, kOrderPrefix.size() - 1)) + " list:\n" +
                       go_text(order) + "\n");
    }
    at_least = *place + 1;
  }
  return std::nullopt;
}

// Applies `$setElementOrder`: merges the patch's list, if there is one, and sorts the result.
Failure reorder(const SchemaNode* schema, const std::string& name, Json& object, Json& patch,
                const Json& order) {
  if (!order.is_array()) return malformed("invalid patch format of setElementOrder list");
  if (!merges(schema)) return std::nullopt;
  const auto live = object.find(name), change = patch.find(name);
  const bool is_live = live != object.end() && live->is_array();
  const bool is_changed = change != patch.end();
  if (is_changed ? !change->is_array() : !is_live) return std::nullopt;
  const Identity identity{schema->merge_key};
  Json list = is_live ? *live : Json::array();
  const Positions before = positions(list, identity);
  if (is_changed) {
    if (auto error = check_order(*change, order, identity)) return error;
    if (auto error = merge_list(schema, list, std::move(*change))) return error;
    patch.erase(change);
  }
  object[name] = in_order(std::move(list), positions(order, identity), before, identity);
  return std::nullopt;
}

Failure reorder_lists(const SchemaNode* schema, Json& object, Json& patch) {
  Json orders = Json::object();
  for (auto it = patch.begin(); it != patch.end();) {
    if (!it.key().starts_with(kOrderPrefix)) {
      ++it;
      continue;
    }
    orders[it.key().substr(kOrderPrefix.size())] = std::move(*it);
    it = patch.erase(it);
  }
  for (const auto& [name, order] : orders.items()) {
    if (auto error = reorder(member_of(schema, name), name, object, patch, order)) return error;
  }
  return std::nullopt;
}

Failure merge_member(const SchemaNode* schema, Json& object, const std::string& key, Json value) {
  const auto found = object.find(key);
  if (value.is_null()) {
    if (found != object.end()) object.erase(found);
    return std::nullopt;
  }
  if (found != object.end() && found->is_object() && value.is_object())
    return merge_object(member_of(schema, key), *found, std::move(value));
  if (found != object.end() && found->is_array() && value.is_array())
    return merge_list(member_of(schema, key), *found, std::move(value));
  if (strip(value)) {
    object[key] = std::move(value);
  } else {
    object.erase(key);
  }
  return std::nullopt;
}

Failure merge_object(const SchemaNode* schema, Json& object, Json patch) {
  if (const Json* directive = find_member(patch, kPatch)) {
    if (*directive != "replace" && *directive != "delete")
      return unknown_patch_type(*directive, patch);
    if (!strip(patch)) patch = Json::object();
    object = std::move(patch);
    return std::nullopt;
  }
  if (auto error = retain_keys(object, patch)) return error;
  if (auto error = reorder_lists(schema, object, patch)) return error;
  for (auto& [key, value] : patch.items()) {
    if (key.starts_with(kDeletePrefix)) {
      if (auto error = delete_values(object, key.substr(kDeletePrefix.size()), value)) return error;
    } else if (auto error = merge_member(schema, object, key, std::move(value))) {
      return error;
    }
  }
  return std::nullopt;
}

}  // namespace

PatchResult apply_strategic_patch(const SchemaNode& schema, const Json& object, const Json& patch,
                                  const PatchLimits& limits) {
  if (!patch.is_object()) {
    return malformed("error decoding patch: expected an object, found " +
                     std::string(patch.type_name()));
  }
  Json result = object;
  if (auto error = merge_object(&schema, result, patch)) return *error;
  const JsonSize size = size_of(result);
  if (size.bytes > limits.bytes_max || size.depth > limits.depth_max) {
    return PatchError{413, "the patched object is larger than " + std::to_string(limits.bytes_max) +
                               " bytes or " + std::to_string(limits.depth_max) + " levels"};
  }
  return result;
}

}  // namespace lockstep::local
