#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Replaces every byte that is not part of a well-formed character by U+FFFD. Zero bytes are
// replaced too, since readers of our messages do not accept them as text. Source: RFC 3629 (no
// overlong forms, no surrogates, nothing above U+10FFFF).
std::string clean_utf8(std::string_view text);

// Returns the length in bytes of the well-formed character at the start of the text, which is not
// empty; 0 if there is none. A zero byte is none.
size_t utf8_character_bytes(std::string_view text);

// Returns the longest suffix of at most bytes_max bytes that begins with a whole character. The
// text must be well-formed.
std::string_view utf8_tail(std::string_view text, size_t bytes_max);

// Returns the longest prefix of at most bytes_max bytes that ends with a whole character, for
// well-formed text. If the input is not UTF-8, returns exactly bytes_max bytes.
std::string_view utf8_head(std::string_view text, size_t bytes_max);

// Returns the text if it has at most bytes_max bytes. Otherwise its first third and its end, with
// "..." between them, in at most bytes_max bytes of whole characters: a message names the cause at
// its end, after a path that may be long. The text must be well-formed, bytes_max at least 16.
std::string utf8_elided(std::string_view text, size_t bytes_max);

}  // namespace lockstep
