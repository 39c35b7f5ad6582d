#include "local/patch/json_size.h"

#include <algorithm>

namespace lockstep::local {
namespace {

constexpr size_t kNumberBytesMax = 24;

size_t quoted_bytes(const std::string& text) {
  size_t bytes = text.size() + 2;
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t') {
      bytes += 1;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      bytes += 5;  // \u0001
    }
  }
  return bytes;
}

template <class Integer>
size_t digits(Integer value) {
  size_t count = 1;
  while (value /= 10) ++count;
  return count;
}

size_t plain_bytes(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return quoted_bytes(value.get_ref<const std::string&>());
    case Json::value_t::boolean:
      return value.get<bool>() ? 4 : 5;
    case Json::value_t::number_unsigned:
      return digits(value.get<uint64_t>());
    case Json::value_t::number_integer:
      return digits(value.get<int64_t>()) + (value.get<int64_t>() < 0 ? 1 : 0);
    case Json::value_t::number_float:
      return kNumberBytesMax;
    default:
      return 4;  // null
  }
}

void measure(const Json& value, size_t depth, JsonSize& size) {
  ++size.values;
  if (!value.is_structured()) {
    size.bytes += plain_bytes(value);
    return;
  }
  size.depth = std::max(size.depth, depth + 1);
  size.bytes += 2 + (value.empty() ? 0 : value.size() - 1);
  if (value.is_array()) {
    for (const Json& element : value) measure(element, depth + 1, size);
    return;
  }
  for (const auto& [key, member] : value.get_ref<const Json::object_t&>()) {
    size.bytes += quoted_bytes(key) + 1;
    measure(member, depth + 1, size);
  }
}

void append_go_text(const Json& value, size_t length_max, std::string& text) {
  if (text.size() > length_max) return;
  if (value.is_string()) {
    text += value.get_ref<const std::string&>();
  } else if (value.is_null()) {
    text += "<nil>";
  } else if (value.is_object()) {
    text += "map[";
    for (auto it = value.begin(); it != value.end() && text.size() <= length_max; ++it) {
      if (it != value.begin()) text += ' ';
      text += it.key() + ':';
      append_go_text(*it, length_max, text);
    }
    text += ']';
  } else if (value.is_array()) {
    text += '[';
    for (size_t i = 0; i < value.size() && text.size() <= length_max; ++i) {
      if (i > 0) text += ' ';
      append_go_text(value[i], length_max, text);
    }
    text += ']';
  } else {
    text += dump_json(value);
  }
}

}  // namespace

JsonSize size_of(const Json& value) {
  JsonSize size;
  measure(value, 0, size);
  return size;
}

std::string go_text(const Json& value, size_t length_max) {
  std::string text;
  append_go_text(value, length_max, text);
  if (text.size() <= length_max) return text;
  // Do not cut inside a UTF-8 character.
  while (length_max > 0 && (static_cast<unsigned char>(text[length_max]) & 0xC0) == 0x80)
    --length_max;
  return text.substr(0, length_max) + "...";
}

}  // namespace lockstep::local
