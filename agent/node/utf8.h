#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// The text with every byte that is not part of a well-formed character replaced by U+FFFD.
// Source: RFC 3629 (no overlong forms, no surrogates, nothing above U+10FFFF).
std::string clean_utf8(std::string_view text);

// The last at most bytes_max bytes of well-formed text, beginning with a whole character.
std::string_view utf8_tail(std::string_view text, size_t bytes_max);

// The length of the longest prefix of at most bytes_max bytes that doesn't cut a character.
size_t utf8_cut(std::string_view text, size_t bytes_max);

}  // namespace lockstep
