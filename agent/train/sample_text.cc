#include "agent/train/sample_text.h"

#include <sstream>

namespace lockstep::train {
namespace {

Result<std::vector<int32_t>> encode(const std::string& prompt, const TokenSource& source,
                                    TokenWidth width) {
  std::vector<int32_t> tokens;
  if (width == TokenWidth::kByte) {
    for (const char c : prompt) tokens.push_back(static_cast<uint8_t>(c));
  } else {
    std::istringstream words(prompt);
    for (int32_t token; words >> token;) tokens.push_back(token);
  }
  if (tokens.empty()) {
    tokens.resize(1);
    TRY(source.read(0, tokens));
  }
  return tokens;
}

std::string decode(const std::vector<int32_t>& tokens, TokenWidth width) {
  std::string text;
  for (const int32_t token : tokens) {
    if (width == TokenWidth::kByte) {
      // A vocabulary may be larger than the bytes that training has shown it.
      text += token < 256 ? static_cast<char>(token) : '?';
    } else {
      text += (text.empty() ? "" : " ") + std::to_string(token);
    }
  }
  return text;
}

}  // namespace

Result<std::optional<std::string>> sample_text(parallel::Composition& model, const SampleSpec& spec,
                                               const TokenSource& source, TokenWidth width) {
  TRY_ASSIGN(std::vector<int32_t> tokens, encode(spec.prompt, source, width));
  TRY_ASSIGN(const std::optional<std::vector<int32_t>> more,
             model.generate({.prompt = tokens,
                             .tokens = spec.tokens,
                             .temperature = static_cast<float>(spec.temperature),
                             .top_k = spec.topK,
                             .seed = static_cast<uint64_t>(spec.seed)}));
  if (!more) return std::optional<std::string>();
  tokens.insert(tokens.end(), more->begin(), more->end());
  return std::optional(decode(tokens, width) + "\n");
}

}  // namespace lockstep::train
