#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// The text with every byte that is not part of a well-formed character, and every zero byte, which
// readers of our messages take for no text, replaced by U+FFFD.
// Source: RFC 3629 (no overlong forms, no surrogates, nothing above U+10FFFF).
std::string clean_utf8(std::string_view text);

// The last at most bytes_max bytes of well-formed text, beginning with a whole character.
std::string_view utf8_tail(std::string_view text, size_t bytes_max);

// The first at most bytes_max bytes of well-formed text, ending with a whole character. Of what is
// no text at all exactly bytes_max.
std::string_view utf8_head(std::string_view text, size_t bytes_max);

}  // namespace lockstep
