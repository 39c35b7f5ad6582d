#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::cli {

// Classes of characters as GPT-2's pattern for words has them: \p{L}, \p{N}, \s, and the rest.
enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };

// `code` is a Unicode code point. Letters and numbers are those of the Unicode version of
// unicode_ranges.h, spaces have the property White_Space.
CharacterClass class_of(uint32_t code);

struct Character {
  CharacterClass kind = CharacterClass::kOther;
  size_t bytes = 1;
};

// The character at the start of a text, which is not empty. A byte that is not part of well-formed
// UTF-8 is a character of its own, of the class kOther.
Character first_character(std::string_view text);

}  // namespace lockstep::cli
