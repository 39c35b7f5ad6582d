#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace lockstep {

// Keys stay in the order of the alphabet, so that dump() of equal documents is equal text.
using Json = nlohmann::json;

struct JsonLimits {
  size_t bytes_max = 3u << 20;  // kube-apiserver's own bound on bodies
  int depth_max = 64;
  size_t values_max = 200'000;
};

// Parses text from outside. Bounded in bytes, depth and number of values while it parses, refuses
// duplicate keys, invalid UTF-8 and trailing text. kInvalid with the byte offset; never throws.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// What an answer that carries others' objects is held to: a watch's event, a list.
struct ObjectLimits {
  int objects_at = 0;                // levels above an object: 0 where the text is one
  int depth_max = 64;                // of an object, at least 3
  size_t part_values_max = 200'000;  // in a part of an object: its metadata, spec or status
  size_t bytes_max = 3u << 20;       // of the whole text
  size_t values_max = 1'000'000;     // of it that are kept
};

// As parse_json(), but an object that is too deep or too large makes nothing else unreadable: the
// member that is to blame (spec.podTemplate, metadata.managedFields), or the part where none is,
// becomes a text for left_out().
Result<Json> parse_json_objects(std::string_view text, const ObjectLimits& limits);

// Why something that was here was left out ("nested deeper than 64 levels"); empty: it wasn't.
std::string left_out(const Json& value);

// Compact text. Bytes that are not UTF-8 become U+FFFD; never throws.
std::string dump_json(const Json& value);

// Readers for documents of our own programs (messages, manifests): the member, or an error that
// names `key`. nullptr / the fallback where it is absent.
const Json* find_member(const Json& object, std::string_view key);
Result<std::string> string_member(const Json& object, std::string_view key);
Result<int64_t> int_member(const Json& object, std::string_view key);
Result<double> number_member(const Json& object, std::string_view key);
std::string string_or(const Json& object, std::string_view key, std::string_view fallback);
int64_t int_or(const Json& object, std::string_view key, int64_t fallback);
double number_or(const Json& object, std::string_view key, double fallback);
bool bool_or(const Json& object, std::string_view key, bool fallback);

}  // namespace lockstep
