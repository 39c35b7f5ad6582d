#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep {

// Every mistake of a document at once, each `path: what was found, what would be right`.
using Problems = std::vector<std::string>;

// All problems in one kInvalid, a line each; at most kProblemsShown of them, and how many more.
inline constexpr size_t kProblemsShown = 50;
Error to_error(const Problems& problems);

// "spec" and "nodes" are "spec.nodes"; a key that isn't a plain name is quoted: spec["a b"].
std::string join_path(const std::string& path, std::string_view key);

// What came, for a message: `the string "two"`, `12`, `a list`; long and odd ones are cut.
std::string describe_found(const Json& found);
// The text in quotes, cut, with what is not printable escaped.
std::string in_quotes(std::string_view text);

std::string type_problem(const std::string& path, const Json& found, std::string_view expected);
std::string missing_problem(const std::string& path, std::string_view expected);

// The known name that a user most likely meant (fewest edits, at most a third of the name), or "".
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known);

// Adds each member of `object` that is not among `known`, with the nearest name.
void add_unknown_fields(const Json& object, const std::string& path,
                        const std::vector<std::string_view>& known, Problems& problems);

}  // namespace lockstep
