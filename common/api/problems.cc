#include "common/api/problems.h"

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

constexpr size_t kShownBytesMax = 60;  // of a user's text in a message
constexpr size_t kNameBytesMax = 64;   // longer names are not typing errors

bool is_plain_name(std::string_view key) {
  return !key.empty() && key.size() <= kShownBytesMax &&
         std::all_of(key.begin(), key.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Counts insertions, deletions, replacements and swaps of neighbours as one edit each, ignoring
// case. Source: the restricted Damerau-Levenshtein distance.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

Error to_error(const Problems& problems) {
  std::string message;
  const size_t shown = std::min(problems.size(), kProblemsShown);
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) message += '\n';
    message += problems[i];
  }
  if (problems.size() > shown) {
    message += "\nand " + std::to_string(problems.size() - shown) + " more problems";
  }
  return invalid(std::move(message));
}

std::string join_path(const std::string& path, std::string_view key) {
  if (!is_plain_name(key)) return path + "[" + in_quotes(key) + "]";
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

std::string in_quotes(std::string_view text) {
  const bool cut = text.size() > kShownBytesMax;
  // dump_json() escapes unprintable characters and replaces invalid UTF-8, which truncation can
  // cause.
  std::string shown = dump_json(Json(std::string(text.substr(0, kShownBytesMax))));
  if (cut) shown.insert(shown.size() - 1, "...");
  return shown;
}

std::string describe_found(const Json& found) {
  switch (found.type()) {
    case Json::value_t::null:
      return "nothing (null)";
    case Json::value_t::string:
      return "the string " + in_quotes(found.get_ref<const std::string&>());
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    default:
      return dump_json(found);
  }
}

std::string type_problem(const std::string& path, const Json& found, std::string_view expected) {
  return (path.empty() ? "document" : path) + ": found " + describe_found(found) + ", expected " +
         std::string(expected);
}

std::string missing_problem(const std::string& path, std::string_view expected) {
  return path + ": missing, expected " + std::string(expected);
}

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known) {
  if (name.size() > kNameBytesMax) return {};
  std::string_view nearest;
  size_t nearest_edits = std::max<size_t>(1, (name.size() + 1) / 3) + 1;
  for (const std::string_view candidate : known) {
    const size_t edits = edit_distance(name, candidate);
    if (edits < nearest_edits && edits < candidate.size()) {
      nearest = candidate;
      nearest_edits = edits;
    }
  }
  return nearest;
}

void add_unknown_fields(const Json& object, const std::string& path,
                        const std::vector<std::string_view>& known, Problems& problems) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string problem = join_path(path, key) + ": unknown field, ";
    const std::string_view nearest = nearest_name(key, known);
    if (!nearest.empty()) {
      problem += "did you mean " + std::string(nearest) + "?";
    } else {
      problem += "known fields:";
      for (const std::string_view name : known) problem += " " + std::string(name);
    }
    problems.push_back(std::move(problem));
  }
}

}  // namespace lockstep
