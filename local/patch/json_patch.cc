#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "local/patch/json_size.h"
#include "local/patch/patch.h"

namespace lockstep::local {
namespace {

// Limit on elements moved and values walked. It bounds the time of ten thousand operations on a
// long list.
constexpr size_t kWorkMax = 20'000'000;

using Failure = std::optional<PatchError>;

PatchError refused(std::string message) {
  return {422, std::move(message)};
}

// Parses a JSON pointer (RFC 6901). nullopt if the text is not a pointer below the root.
std::optional<std::vector<std::string>> parse_pointer(std::string_view text) {
  if (text.empty() || text[0] != '/') return std::nullopt;
  std::vector<std::string> tokens(1);
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '/') {
      tokens.emplace_back();
    } else if (text[i] == '~' && i + 1 < text.size() &&
               (text[i + 1] == '0' || text[i + 1] == '1')) {
      tokens.back() += text[++i] == '0' ? '~' : '/';
    } else {
      tokens.back() += text[i];
    }
  }
  return tokens;
}

struct Index {
  size_t value = 0;
  std::string error;  // "" if the index is valid
};

// Parses an array index, which must be below `end`.
Index parse_index(const std::string& token, size_t end) {
  size_t index = 0;
  const char* last = token.data() + token.size();
  const auto [rest, code] = std::from_chars(token.data(), last, index);
  const bool padded = token.size() > 1 && token[0] == '0';
  if (token.empty() || rest != last || padded)
    return {0, "value was not a proper array index: '" + token + "'"};
  if (code != std::errc() || index >= end)
    return {0, "Unable to access invalid index: " + token + ": invalid index referenced"};
  return {index, ""};
}

class JsonPatcher {
 public:
  JsonPatcher(Json object, const PatchLimits& limits)
      : document_(std::move(object)), limits_(limits) {}

  Failure apply(const Json& operation);
  Json take() { return std::move(document_); }

 private:
  // The target of an operation: a member, present or not, of an existing container.
  struct Location {
    std::string path;
    Json* container = nullptr;
    std::string token;
    size_t depth = 0;  // of the member
  };

  std::variant<Location, PatchError> find(const Json& operation, const char* member,
                                          const std::string& missing);
  // Returns the value; null if there is none, with the reason in `why`.
  Json* read(const Location& place, std::string& why);
  Failure put(const Location& place, Json value, size_t known_depth = SIZE_MAX);
  Failure erase(const Location& place);
  bool spend(size_t work) { return (work_ += work) <= kWorkMax; }
  PatchError too_much() const { return {413, "the JSON patch is too expensive to apply"}; }

  Failure add(const Json& operation);
  Failure remove(const Json& operation);
  Failure replace(const Json& operation);
  Failure move(const Json& operation);
  Failure copy(const Json& operation);
  Failure test(const Json& operation);

  Json document_;
  const PatchLimits limits_;
  size_t work_ = 0;
  size_t copied_bytes_ = 0;
};

const Json& value_of(const Json& operation) {
  static const Json kNull;
  const Json* value = find_member(operation, "value");
  return value == nullptr ? kNull : *value;
}

// Resolves a pointer to a place. `member` is the operation's field that holds it: path or from.
std::variant<JsonPatcher::Location, PatchError> JsonPatcher::find(const Json& operation,
                                                                  const char* member,
                                                                  const std::string& missing) {
  const Json* path = find_member(operation, member);
  if (path == nullptr || !path->is_string()) {
    return refused(string_or(operation, "op", "") + " operation failed to decode " + member +
                   ": missing value");
  }
  Location place{path->get<std::string>(), &document_, "", 0};
  const auto tokens = parse_pointer(place.path);
  const char* quote = missing.ends_with('"') ? "\"" : "";
  const PatchError not_there = refused(missing + place.path + quote + ": missing value");
  if (!tokens) return not_there;
  place.depth = tokens->size();
  for (size_t i = 0; i + 1 < tokens->size(); ++i) {
    place.token = (*tokens)[i];
    std::string why;
    place.container = read(place, why);
    if (place.container == nullptr) return not_there;
  }
  if (!place.container->is_structured()) return not_there;
  place.token = tokens->back();
  return place;
}

Json* JsonPatcher::read(const Location& place, std::string& why) {
  Json& container = *place.container;
  if (container.is_object()) {
    const auto it = container.find(place.token);
    if (it != container.end()) return &*it;
    why = "unable to get nonexistent key: " + place.token + ": missing value";
    return nullptr;
  }
  if (!container.is_array()) {
    why = "missing value";
    return nullptr;
  }
  const Index index = parse_index(place.token, container.size());
  why = index.error;
  return why.empty() ? &container[index.value] : nullptr;
}

Failure JsonPatcher::put(const Location& place, Json value, size_t known_depth) {
  if (known_depth == SIZE_MAX) {
    const JsonSize size = size_of(value);
    if (!spend(size.values)) return too_much();
    known_depth = size.depth;
  }
  if (place.depth + known_depth > limits_.depth_max) {
    return PatchError{413, "path '" + place.path + "': the object would be nested deeper than " +
                               std::to_string(limits_.depth_max) + " levels"};
  }
  Json& container = *place.container;
  if (container.is_object()) {
    container[place.token] = std::move(value);
    return std::nullopt;
  }
  if (place.token == "-") {
    container.push_back(std::move(value));
    return std::nullopt;
  }
  const Index index = parse_index(place.token, container.size() + 1);
  if (!index.error.empty())
    return refused("error in add for path: '" + place.path + "': " + index.error);
  if (!spend(container.size() - index.value)) return too_much();
  container.insert(container.begin() + static_cast<Json::difference_type>(index.value),
                   std::move(value));
  return std::nullopt;
}

Failure JsonPatcher::erase(const Location& place) {
  Json& container = *place.container;
  if (container.is_object()) {
    if (container.erase(place.token) == 1) return std::nullopt;
    return refused("error in remove for path: '" + place.path +
                   "': Unable to remove nonexistent key: " + place.token + ": missing value");
  }
  const Index index = parse_index(place.token, container.size());
  if (!index.error.empty())
    return refused("error in remove for path: '" + place.path + "': " + index.error);
  if (!spend(container.size() - index.value)) return too_much();
  container.erase(index.value);
  return std::nullopt;
}

Failure JsonPatcher::add(const Json& operation) {
  auto place = find(operation, "path", "add operation does not apply: doc is missing path: \"");
  if (auto* error = std::get_if<PatchError>(&place)) return *error;
  return put(std::get<Location>(place), value_of(operation));
}

Failure JsonPatcher::remove(const Json& operation) {
  auto place = find(operation, "path", "remove operation does not apply: doc is missing path: \"");
  if (auto* error = std::get_if<PatchError>(&place)) return *error;
  return erase(std::get<Location>(place));
}

Failure JsonPatcher::replace(const Json& operation) {
  auto found = find(operation, "path", "replace operation does not apply: doc is missing path: ");
  if (auto* error = std::get_if<PatchError>(&found)) return *error;
  Location& place = std::get<Location>(found);
  std::string why;
  Json* target = read(place, why);
  if (target == nullptr) {
    return refused("replace operation does not apply: doc is missing key: " + place.path +
                   ": missing value");
  }
  // Put the value into a holder first: put() would insert into an array instead of replacing.
  Json holder = {{"value", nullptr}};
  Location there{place.path, &holder, "value", place.depth};
  if (auto error = put(there, value_of(operation))) return error;
  *target = std::move(holder["value"]);
  return std::nullopt;
}

Failure JsonPatcher::move(const Json& operation) {
  auto from = find(operation, "from", "move operation does not apply: doc is missing from path: ");
  if (auto* error = std::get_if<PatchError>(&from)) return *error;
  Location& source = std::get<Location>(from);
  std::string why;
  Json* found = read(source, why);
  if (found == nullptr) return refused("error in move for path: '" + source.path + "': " + why);
  Json value = std::move(*found);
  const size_t depth_before = source.depth;
  if (auto error = erase(source)) return error;
  auto to =
      find(operation, "path", "move operation does not apply: doc is missing destination path: ");
  if (auto* error = std::get_if<PatchError>(&to)) return *error;
  Location& target = std::get<Location>(to);
  // The value fitted at its old depth, so only a deeper target needs a check.
  const size_t known_depth = target.depth <= depth_before ? 0 : SIZE_MAX;
  return put(target, std::move(value), known_depth);
}

Failure JsonPatcher::copy(const Json& operation) {
  auto from = find(operation, "from", "copy operation does not apply: doc is missing from path: ");
  if (auto* error = std::get_if<PatchError>(&from)) return *error;
  Location& source = std::get<Location>(from);
  std::string why;
  const Json* found = read(source, why);
  if (found == nullptr) return refused("error in copy for from: '" + source.path + "': " + why);
  auto to =
      find(operation, "path", "copy operation does not apply: doc is missing destination path: ");
  if (auto* error = std::get_if<PatchError>(&to)) return *error;
  const JsonSize size = size_of(*found);
  copied_bytes_ += size.bytes;
  if (copied_bytes_ > limits_.bytes_max) {
    return refused("Unable to copy, the accumulated size increase of copy operation is " +
                   std::to_string(copied_bytes_) + ", exceeding the limit " +
                   std::to_string(limits_.bytes_max));
  }
  return put(std::get<Location>(to), Json(*found), size.depth);
}

Failure JsonPatcher::test(const Json& operation) {
  auto found = find(operation, "path", "test operation does not apply: is missing path: ");
  if (auto* error = std::get_if<PatchError>(&found)) return *error;
  const Location& place = std::get<Location>(found);
  std::string why;
  const Json* value = read(place, why);
  if (value == nullptr && place.container->is_array())
    return refused("error in test for path: '" + place.path + "': " + why);
  const Json& expected = value_of(operation);
  const bool equal = value == nullptr ? expected.is_null() : *value == expected;
  if (equal) return std::nullopt;
  return refused("testing value " + place.path + " failed: test failed");
}

Failure JsonPatcher::apply(const Json& operation) {
  const std::string kind = string_or(operation, "op", "unknown");
  if (kind == "add") return add(operation);
  if (kind == "remove") return remove(operation);
  if (kind == "replace") return replace(operation);
  if (kind == "move") return move(operation);
  if (kind == "copy") return copy(operation);
  if (kind == "test") return test(operation);
  return refused("Unexpected kind: " + kind);
}

}  // namespace

PatchResult apply_json_patch(const Json& object, const Json& patch, const PatchLimits& limits) {
  if (!patch.is_array()) {
    return PatchError{400, "error decoding patch: expected a list of operations, found " +
                               std::string(patch.type_name())};
  }
  if (patch.size() > limits.operations_max) {
    return PatchError{413, "The allowed maximum operations in a JSON patch is " +
                               std::to_string(limits.operations_max) + ", got " +
                               std::to_string(patch.size())};
  }
  for (const Json& operation : patch) {
    if (!operation.is_object()) {
      return PatchError{400,
                        "error decoding patch: expected an operation that is an object, found " +
                            std::string(operation.type_name())};
    }
  }
  JsonPatcher patcher(object, limits);
  for (const Json& operation : patch) {
    if (auto error = patcher.apply(operation)) return *error;
  }
  Json result = patcher.take();
  if (size_of(result).bytes > limits.bytes_max) {
    return PatchError{
        413, "the patched object is larger than " + std::to_string(limits.bytes_max) + " bytes"};
  }
  return result;
}

}  // namespace lockstep::local
