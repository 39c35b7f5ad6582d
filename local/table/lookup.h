#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "common/base/json.h"

namespace lockstep::local {

// Readers for user objects, which may have any shape. A value that is absent, or has an unexpected
// type, reads as missing.

// Returns the value at `path`; null if there is none. Lives as long as `object`.
const Json& value_at(const Json& object, std::initializer_list<std::string_view> path);
// Returns the array at `path`; an empty one if there is none.
const Json& list_at(const Json& object, std::initializer_list<std::string_view> path);
// Returns the string at `path`; `fallback` if there is none or it is empty.
std::string text_at(const Json& object, std::initializer_list<std::string_view> path,
                    std::string_view fallback = "");
// Returns the condition with this type in `conditions`; null if there is none.
const Json& condition_of(const Json& conditions, std::string_view type);

}  // namespace lockstep::local
