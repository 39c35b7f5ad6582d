#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

// Keys are sorted alphabetically, so that dump() of equal documents gives equal text.
using Json = nlohmann::json;

struct JsonLimits {
  size_t bytes_max = 3u << 20;  // kube-apiserver's own limit for request bodies
  int depth_max = 64;
  size_t values_max = 200'000;
};

// Parses text from outside. Enforces the limits on bytes, depth and number of values while it
// parses; refuses duplicate keys, invalid UTF-8 and trailing text. Never throws; kInvalid with the
// byte offset.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Limits for a response that contains objects of other owners: a watch event or a list.
struct ObjectLimits {
  int objects_at = 0;  // nesting levels above each object; 0 if the text is one object
  int depth_max = 64;  // per object, at least 3
  size_t part_values_max = 200'000;  // per part of an object: its metadata, spec or status
  size_t bytes_max = 3u << 20;       // of the whole text
  size_t values_max = 1'000'000;     // values kept from the whole text
  // A member of each object's metadata that is dropped, such as managedFields, which is half of a
  // pod; empty: none.
  std::string_view dropped{};
};

// Parses like parse_json(), but an object that is too deep or too large does not make the rest
// unreadable. The offending member (spec.podTemplate, metadata.managedFields), or its whole part if
// no single member is to blame, is replaced by a text that left_out() recognises.
Result<Json> parse_json_objects(std::string_view text, const ObjectLimits& limits);

// Returns why this value was left out ("nested deeper than 64 levels"); empty if it was not.
std::string left_out(const Json& value);

// Serialises to compact text. Bytes that are not UTF-8 become U+FFFD; never throws.
std::string dump_json(const Json& value);

// Readers for documents that our own programs write (messages, manifests). Each returns the member,
// or an error that names `key`. If the member is absent, find_member returns nullptr and the *_or
// functions return the fallback.
const Json* find_member(const Json& object, std::string_view key);
Result<std::string> string_member(const Json& object, std::string_view key);
Result<int64_t> int_member(const Json& object, std::string_view key);
std::string string_or(const Json& object, std::string_view key, std::string_view fallback);
int64_t int_or(const Json& object, std::string_view key, int64_t fallback);
double number_or(const Json& object, std::string_view key, double fallback);
bool bool_or(const Json& object, std::string_view key, bool fallback);

}  // namespace lockstep
