#pragma once

#include <memory>
#include <string_view>

#include "cli/tokenize/tokenizer.h"
#include "common/base/result.h"

namespace lockstep::cli {

// The contents of a vocab.json and its merges.txt.
struct Gpt2Texts {
  std::string_view vocabulary;
  std::string_view merges;
};

// GPT-2's byte-level byte-pair encoding. Any bytes can be encoded, and their pieces give them back.
// Pieces that no merge makes, such as <|endoftext|>, stand for no text, and text never becomes one.
// kInvalid as parse_gpt2_vocabulary() and parse_gpt2_merges(), with the file's name before it.
Result<std::unique_ptr<Tokenizer>> make_gpt2_tokenizer(const Gpt2Texts& texts);

}  // namespace lockstep::cli
