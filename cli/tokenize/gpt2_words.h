#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::cli {

// GPT-2 cuts text into words before it merges bytes, and no token reaches over a word's end. The
// words are the matches of the pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Source: Radford et al., 2019 (GPT-2), encoder.py.

// Returns the length in bytes of the first word of a text, which is not empty.
size_t gpt2_word_bytes(std::string_view text);

// Returns the length of a prefix of the text at whose end a word ends whatever precedes and
// follows: the longest one that is found in a part of the text from its end; 0 if there is none.
// The last 4 bytes of the text are not in it, since their character may go on after the text.
size_t gpt2_cut(std::string_view text);

}  // namespace lockstep::cli
