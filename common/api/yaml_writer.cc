#include <algorithm>
#include <array>

#include "common/api/yaml.h"
#include "common/api/yaml_scalar.h"

namespace lockstep {
namespace {

// Words that YAML 1.1 does not read as strings.
bool is_word_of_yaml_1_1(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  constexpr std::array<std::string_view, 10> kWords = {"y",   "n",    "yes",   "no",   "on",
                                                       "off", "true", "false", "null", "~"};
  return std::find(kWords.begin(), kWords.end(), text) != kWords.end();
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Returns whether the text can be written without quotes: it begins like a word or path, has no
// special character, and does not read as another kind of scalar.
bool may_be_plain(const std::string& text) {
  if (text.empty() || text.size() > 500) return false;
  if (!is_letter(text.front()) && text.front() != '/' && text.front() != '_') return false;
  if (text.back() == ' ' || text.back() == ':') return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_safe = is_letter(c) || (c >= '0' && c <= '9') ||
                         std::string_view(" _-./:+@=,();").find(c) != std::string_view::npos;
    if (!is_safe || (c == ':' && text[i + 1] == ' ')) return false;
  }
  if (is_word_of_yaml_1_1(text)) return false;
  const Result<Json> read = yaml_scalar("?", text);
  return read.ok() && *read == text;
}

// Returns whether a block scalar preserves the text: printable lines, no leading white space.
bool may_be_block(const std::string& text) {
  if (text.find('\n') == std::string::npos || text.front() == ' ' || text.front() == '\n') {
    return false;
  }
  const bool has_odd = std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\t') || byte >= 0x7f;
  });
  return !has_odd && text.front() != '\t';
}

void append_block(std::string& out, const std::string& text, size_t indent) {
  const size_t last = text.find_last_not_of('\n');
  const size_t ends = text.size() - (last == std::string::npos ? 0 : last + 1);
  out += ends == 0 ? " |-" : ends == 1 ? " |" : " |+";
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += '\n';
    if (end > begin) out.append(indent, ' ').append(text, begin, end - begin);
    begin = end + 1;
  }
  out += '\n';
}

std::string scalar(const Json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (may_be_plain(text)) return text;
  }
  return dump_json(value);  // JSON's quoting is valid YAML
}

void append_node(std::string& out, const Json& value, size_t indent);

void append_map(std::string& out, const Json& value, size_t indent, bool first_in_place) {
  for (const auto& [key, member] : value.items()) {
    if (!std::exchange(first_in_place, false)) out.append(indent, ' ');
    out += scalar(key) + ":";
    // A list may be indented like its key.
    append_node(out, member, member.is_array() ? indent : indent + 2);
  }
}

void append_list(std::string& out, const Json& value, size_t indent) {
  for (const Json& item : value) {
    out.append(indent, ' ').append("-");
    if (item.is_object() && !item.empty()) {
      out += ' ';
      append_map(out, item, indent + 2, true);
    } else {
      append_node(out, item, indent + 2);
    }
  }
}

// Writes a value after a key or a dash: on the same line, or below it.
void append_node(std::string& out, const Json& value, size_t indent) {
  if (value.is_object() && !value.empty()) {
    out += '\n';
    append_map(out, value, indent, false);
  } else if (value.is_array() && !value.empty()) {
    out += '\n';
    append_list(out, value, indent);
  } else if (value.is_string() && may_be_block(value.get_ref<const std::string&>())) {
    append_block(out, value.get_ref<const std::string&>(), indent);
  } else {
    out += ' ' + scalar(value) + '\n';
  }
}

}  // namespace

std::string yaml_from_json(const Json& document) {
  std::string out;
  if (document.is_object() && !document.empty()) {
    append_map(out, document, 0, false);
  } else if (document.is_array() && !document.empty()) {
    append_list(out, document, 0);
  } else {
    out = scalar(document) + "\n";
  }
  return out;
}

}  // namespace lockstep
