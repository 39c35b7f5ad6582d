#include "cli/tokenize/gpt2_words.h"

#include <algorithm>
#include <initializer_list>

#include "cli/tokenize/unicode_class.h"

namespace lockstep::cli {
namespace {

constexpr size_t kCharacterBytesMax = 4;
constexpr size_t kFirstPart = 1 << 10;  // bytes in which gpt2_cut() looks first

// Returns the length of the characters of that class at the start of the text.
size_t run_bytes(std::string_view text, CharacterClass kind) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const Character next = first_character(text.substr(bytes));
    if (next.kind != kind) break;
    bytes += next.bytes;
  }
  return bytes;
}

size_t contraction_bytes(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(ending)) return ending.size();
  }
  return 0;
}

// The run of spaces at the start of the text. If something follows, the last space is not in it,
// unless it is the only one.
size_t space_bytes(std::string_view text) {
  size_t bytes = 0;
  size_t last = 0;
  while (bytes < text.size()) {
    const Character next = first_character(text.substr(bytes));
    if (next.kind != CharacterClass::kSpace) break;
    last = next.bytes;
    bytes += next.bytes;
  }
  return bytes == text.size() || bytes == last ? bytes : bytes - last;
}

// Whether a word always ends between characters of these classes. After other characters a letter
// may belong to a contraction, and what follows a space may begin with it.
bool always_ends(CharacterClass before, CharacterClass after) {
  if (before == CharacterClass::kSpace) return false;
  if (before == CharacterClass::kOther) return after == CharacterClass::kSpace;
  return before != after;
}

bool is_inside_character(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// Returns the last place in [begin, end] where a word always ends; 0 if there is none.
size_t last_end(std::string_view text, size_t begin, size_t end) {
  while (begin < end && begin > 0 && is_inside_character(text[begin])) ++begin;
  size_t found = 0;
  for (size_t at = begin; at < end;) {
    const Character here = first_character(text.substr(at));
    at += here.bytes;
    if (at > end || at >= text.size()) break;
    if (always_ends(here.kind, first_character(text.substr(at)).kind)) found = at;
  }
  return found;
}

}  // namespace

size_t gpt2_word_bytes(std::string_view text) {
  if (const size_t bytes = contraction_bytes(text)) return bytes;
  const size_t blank = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const CharacterClass kind = first_character(text.substr(blank)).kind;
  if (kind != CharacterClass::kSpace) return blank + run_bytes(text.substr(blank), kind);
  return space_bytes(text);
}

size_t gpt2_cut(std::string_view text) {
  if (text.size() <= kCharacterBytesMax) return 0;
  const size_t end = text.size() - kCharacterBytesMax;
  for (size_t part = kFirstPart;; part *= 8) {
    const size_t begin = end - std::min(part, end);
    const size_t found = last_end(text, begin, end);
    if (found > 0 || begin == 0) return found;
  }
}

}  // namespace lockstep::cli
