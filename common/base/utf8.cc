#include "common/base/utf8.h"

#include <cstdint>

namespace lockstep {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kElision = "...";
constexpr size_t kCharacterBytesMax = 4;

uint8_t byte_at(std::string_view text, size_t at) {
  return static_cast<uint8_t>(text[at]);
}
bool is_continuation(uint8_t byte) {
  return (byte & 0xC0) == 0x80;
}

// The bounds of the second byte exclude overlong forms, surrogates and values above U+10FFFF.
bool second_byte_fits(uint8_t first, uint8_t second) {
  switch (first) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return is_continuation(second);
  }
}

size_t expected_length(uint8_t first) {
  if (first == 0) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

}  // namespace

size_t utf8_character_bytes(std::string_view text) {
  const size_t length = expected_length(byte_at(text, 0));
  if (length <= 1) return length;
  if (text.size() < length || !second_byte_fits(byte_at(text, 0), byte_at(text, 1))) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (!is_continuation(byte_at(text, i))) return 0;
  }
  return length;
}

std::string clean_utf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_character_bytes(text);
    clean += length == 0 ? kReplacement : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return clean;
}

std::string_view utf8_tail(std::string_view text, size_t bytes_max) {
  if (text.size() > bytes_max) {
    text.remove_prefix(text.size() - bytes_max);
    while (!text.empty() && is_continuation(byte_at(text, 0))) text.remove_prefix(1);
  }
  return text;
}

std::string_view utf8_head(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  for (size_t back = 0; back < kCharacterBytesMax && end > 0; ++back, --end) {
    if (!is_continuation(byte_at(text, end))) return text.substr(0, end);
  }
  return text.substr(0, bytes_max);
}

std::string utf8_elided(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  const std::string head(utf8_head(text, bytes_max / 3));
  return head + std::string(kElision) +
         std::string(utf8_tail(text, bytes_max - head.size() - kElision.size()));
}

}  // namespace lockstep
