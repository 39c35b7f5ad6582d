#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "common/base/json.h"

namespace lockstep::local {

// Readers for objects of users, which may have any shape: what is absent, or of another type than
// expected, reads as nothing.

// The value below `path`; null where there is none. Lives as long as `object`.
const Json& value_at(const Json& object, std::initializer_list<std::string_view> path);
// The same for an array: an empty one where there is none.
const Json& list_at(const Json& object, std::initializer_list<std::string_view> path);
// The string below `path`; `fallback` where there is none or an empty one.
std::string text_at(const Json& object, std::initializer_list<std::string_view> path,
                    std::string_view fallback = "");
// The element of the condition list `conditions` that has this type; null where there is none.
const Json& condition_of(const Json& conditions, std::string_view type);

}  // namespace lockstep::local
