#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"

namespace lockstep::cli {

// The character of GPT-2's alphabet that a byte is written as, in UTF-8.
inline std::string alphabet_character(int byte) {
  int code = byte;
  if (byte < 33) code = 256 + byte;
  if (byte >= 127 && byte < 161) code = 256 + 33 + byte - 127;
  if (byte == 173) code = 256 + 67;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

inline std::string written(const std::string& bytes) {
  std::string token;
  for (const char byte : bytes) token += alphabet_character(static_cast<unsigned char>(byte));
  return token;
}

struct SmallGpt2 {
  Json vocabulary = Json::object();
  std::string merges = "#version: 0.2\n";
};

// A vocabulary with all bytes as ids 0 to 255, these merges of bytes from 256 on, and <|end|> last.
inline SmallGpt2 small_gpt2(const std::vector<std::pair<std::string, std::string>>& merges) {
  SmallGpt2 made;
  for (int byte = 0; byte < 256; ++byte) made.vocabulary[alphabet_character(byte)] = byte;
  for (const auto& [left, right] : merges) {
    const std::string token = written(left + right);
    if (!made.vocabulary.contains(token)) made.vocabulary[token] = made.vocabulary.size();
    made.merges += written(left) + " " + written(right) + "\n";
  }
  made.vocabulary["<|end|>"] = made.vocabulary.size();
  return made;
}

}  // namespace lockstep::cli
