#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"

namespace lockstep::cli {

// The pieces of a vocab.json: a JSON object from tokens to ids. Tokens are written in an alphabet
// of 256 characters, one for each byte.
struct Gpt2Pieces {
  std::vector<std::string> bytes;                // by id
  std::unordered_map<std::string, int32_t> ids;  // by the token as it is written
  std::array<int32_t, 256> byte_ids{};           // of the tokens of one byte
};

// Reads a vocab.json. kInvalid, naming the byte offset or the token, unless the ids are 0 to the
// number of tokens - 1 and each byte has a token. Limits: 64 MiB, 2^20 tokens, of 1024 bytes each.
Result<Gpt2Pieces> parse_gpt2_vocabulary(std::string_view text);

// Two adjacent pieces that become one.
struct Gpt2Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
};

// Reads a merges.txt: two tokens a line, the first merge first; a first line that begins with
// "#version" does not count. kInvalid with the line's number for a line that is not two tokens, a
// token that the vocabulary does not have, and a repeated pair. Limit: 64 MiB.
Result<std::vector<Gpt2Merge>> parse_gpt2_merges(std::string_view text, const Gpt2Pieces& pieces);

}  // namespace lockstep::cli
