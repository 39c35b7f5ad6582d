#include "common/api/yaml.h"

namespace lockstep {
namespace {

// Returns whether the line is `marker` (`---` or `...`), possibly followed by a space and more
// text.
bool is_marker(std::string_view line, std::string_view marker) {
  return line.starts_with(marker) &&
         (line.size() == 3 || line[3] == ' ' || line[3] == '\t' || line[3] == '\r');
}

// Returns whether anything is left without comments, directives and blank lines.
bool has_content(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string_view::npos && line[first] != '#' && line[first] != '%') return true;
    begin = end + 1;
  }
  return false;
}

Result<Json> parse_one(const std::string& text, const YamlLimits& limits) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (text[first] == '{') {
    Result<Json> json = parse_json(text, {.bytes_max = limits.bytes_max,
                                          .depth_max = limits.depth_max,
                                          .values_max = limits.values_max});
    if (json.ok()) return json;
  }
  return json_from_yaml(text, limits);
}

}  // namespace

Result<std::vector<Json>> documents_from_yaml(std::string_view text, size_t documents_max,
                                              const YamlLimits& limits) {
  std::vector<std::string> parts(1);
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (is_marker(line, "---") || is_marker(line, "...")) {
      if (parts.size() > 4 * documents_max) break;
      parts.emplace_back(line.starts_with('-') ? line.substr(3) : std::string_view());
      parts.back() += '\n';
      continue;
    }
    parts.back().append(line).append("\n");
  }
  std::vector<Json> documents;
  for (const std::string& part : parts) {
    if (!has_content(part)) continue;
    if (documents.size() == documents_max) {
      return invalid("more than " + std::to_string(documents_max) + " documents");
    }
    Result<Json> one = parse_one(part, limits);
    if (!one.ok()) {
      const std::string number = std::to_string(documents.size() + 1);
      return invalid((parts.size() > 1 ? "document " + number + ": " : "") + one.error().message);
    }
    documents.push_back(std::move(one).value());
  }
  return documents;
}

}  // namespace lockstep
