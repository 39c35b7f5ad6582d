#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep {

// All mistakes in a document, each `path: what was found, what would be right`.
using Problems = std::vector<std::string>;

// Joins the problems into one kInvalid, one per line: the first kProblemsShown, and how many more
// there are.
inline constexpr size_t kProblemsShown = 50;
Error to_error(const Problems& problems);

// Joins "spec" and "nodes" to "spec.nodes". A key that is not a plain name is quoted: spec["a b"].
std::string join_path(const std::string& path, std::string_view key);

// Describes a value for a message: `the string "two"`, `12`, `a list`. Long and unprintable values
// are shortened and escaped.
std::string describe_found(const Json& found);
// Returns the text in quotes, truncated, with unprintable characters escaped.
std::string in_quotes(std::string_view text);

std::string type_problem(const std::string& path, const Json& found, std::string_view expected);
std::string missing_problem(const std::string& path, std::string_view expected);

// Returns the known name that the user most likely meant (fewest edits, at most a third of the
// name), or "".
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known);

// Adds a problem for each member of `object` that is not in `known`, with the nearest name.
void add_unknown_fields(const Json& object, const std::string& path,
                        const std::vector<std::string_view>& known, Problems& problems);

}  // namespace lockstep
