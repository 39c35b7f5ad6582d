#include "common/api/yaml_scalar.h"

#include <charconv>
#include <cmath>

#include "common/api/problems.h"

namespace lockstep {
namespace {

constexpr std::string_view kTagPrefix = "tag:yaml.org,2002:";

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

size_t digits(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
  return count;
}

// Matches [-+]?[0-9]+ or [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?
bool is_number(std::string_view text, bool& integer) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const size_t whole = digits(text);
  text.remove_prefix(whole);
  integer = whole > 0 && text.empty();
  if (integer) return true;
  size_t fraction = 0;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    fraction = digits(text);
    text.remove_prefix(fraction);
  }
  if (whole + fraction == 0) return false;
  if (text.empty()) return true;
  if (text[0] != 'e' && text[0] != 'E') return false;
  text.remove_prefix(1);
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return !text.empty() && digits(text) == text.size();
}

template <class T>
bool read_all(std::string_view text, T& value, int base) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return read.ec == std::errc{} && read.ptr == text.data() + text.size();
}

// Parses 0o17 and 0xff, which have no sign in the core schema.
bool read_based(std::string_view text, int64_t& value) {
  if (text.starts_with("0o")) return read_all(text.substr(2), value, 8) && value >= 0;
  if (text.starts_with("0x")) return read_all(text.substr(2), value, 16) && value >= 0;
  return false;
}

Result<Json> read_number(std::string_view text, bool integer) {
  const std::string_view unsigned_text =
      text.substr(text.starts_with('-') || text.starts_with('+') ? 1 : 0);
  if (integer && unsigned_text.size() > 1 && unsigned_text[0] == '0') {
    return invalid("found " + std::string(text.substr(0, 40)) +
                   ", which some parsers read as octal and others as decimal; write it without the "
                   "leading 0, with 0o, or in quotes");
  }
  const std::string_view plain = text.starts_with('+') ? text.substr(1) : text;
  int64_t whole = 0;
  if (integer && read_all(plain, whole, 10)) return Json(whole);
  double value = 0;
  const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (read.ec != std::errc{} || !std::isfinite(value)) {
    return invalid("found " + in_quotes(text) + ", a number that does not fit in 64 bits");
  }
  return Json(value);
}

Result<Json> read_plain(const std::string& text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return Json(nullptr);
  if (is_one_of(text, {"true", "True", "TRUE"})) return Json(true);
  if (is_one_of(text, {"false", "False", "FALSE"})) return Json(false);
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  if (is_one_of(text.substr(sign), {".inf", ".Inf", ".INF"}) ||
      is_one_of(text, {".nan", ".NaN", ".NAN"})) {
    return invalid("found " + text + ", expected a finite number");
  }
  int64_t based = 0;
  if (read_based(text, based)) return Json(based);
  bool integer = false;
  if (is_number(text, integer)) return read_number(text, integer);
  return Json(text);
}

// Returns the bytes of the UTF-8 character at the start of the text, 0 if it is invalid. Source:
// RFC 3629.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool beyond = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || beyond ? 0 : size;
}

}  // namespace

Status check_yaml_text(std::string_view text) {
  size_t line = 1;
  size_t column = 1;
  const auto here = [&](const std::string& what) {
    return invalid("line " + std::to_string(line) + ", column " + std::to_string(column) + ": " +
                   what);
  };
  for (size_t i = 0; i < text.size(); ++column) {
    const size_t size = character_bytes(text.substr(i));
    if (size == 0) return here("not UTF-8");
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
      return here("found the control character " + std::to_string(c) +
                  ", which YAML does not allow");
    }
    i += size;
    if (c == '\n') {
      ++line;
      column = 0;
    }
  }
  return {};
}

Result<Json> yaml_scalar(std::string_view tag, const std::string& text) {
  if (tag == "!") return Json(text);
  if (tag == "?" || tag.empty()) return read_plain(text);
  if (!tag.starts_with(kTagPrefix)) {
    return invalid("found the tag " + in_quotes(tag) + ", expected none");
  }
  const std::string_view type = tag.substr(kTagPrefix.size());
  if (type == "str") return Json(text);
  TRY_ASSIGN(Json value, read_plain(text));
  const bool fits = (type == "null" && value.is_null()) || (type == "bool" && value.is_boolean()) ||
                    (type == "int" && value.is_number_integer()) ||
                    (type == "float" && value.is_number());
  if (!fits) return invalid("found " + in_quotes(text) + " with the tag !!" + std::string(type));
  return value;
}

bool yaml_collection_tag_is_known(std::string_view tag) {
  return tag.empty() || tag == "?" || tag == "!" || tag == std::string(kTagPrefix) + "map" ||
         tag == std::string(kTagPrefix) + "seq";
}

}  // namespace lockstep
