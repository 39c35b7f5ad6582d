#include "cli/tokenize/unicode_class.h"

#include <algorithm>

#include "cli/tokenize/unicode_ranges.h"
#include "common/base/utf8.h"

namespace lockstep::cli {
namespace {

constexpr CodeRange kSpaces[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};

bool is_in(std::span<const CodeRange> ranges, uint32_t code) {
  const auto after = std::ranges::upper_bound(ranges, code, {}, &CodeRange::first);
  return after != ranges.begin() && code <= (after - 1)->last;
}

uint32_t code_of(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first;
  uint32_t code = first & 0xFFu >> (character.size() + 1);
  for (const char next : character.substr(1))
    code = code << 6 | (static_cast<uint8_t>(next) & 0x3F);
  return code;
}

}  // namespace

CharacterClass class_of(uint32_t code) {
  if (code < 0x80) {
    const uint32_t lower = code | 0x20;
    if (lower >= 'a' && lower <= 'z') return CharacterClass::kLetter;
    if (code >= '0' && code <= '9') return CharacterClass::kNumber;
    const bool is_space = code == ' ' || (code >= '\t' && code <= '\r');
    return is_space ? CharacterClass::kSpace : CharacterClass::kOther;
  }
  if (is_in(letter_ranges(), code)) return CharacterClass::kLetter;
  if (is_in(number_ranges(), code)) return CharacterClass::kNumber;
  return is_in(kSpaces, code) ? CharacterClass::kSpace : CharacterClass::kOther;
}

Character first_character(std::string_view text) {
  const size_t bytes = utf8_character_bytes(text);
  if (bytes == 0) return {};
  return {class_of(code_of(text.substr(0, bytes))), bytes};
}

}  // namespace lockstep::cli
