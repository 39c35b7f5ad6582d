#include "agent/train/sample_text.h"

#include <cstdint>
#include <sstream>
#include <vector>

#include "agent/train/checkpoint/file_io.h"
#include "common/base/log.h"
#include "common/text/piece_merger.h"

namespace lockstep::train {
namespace {

constexpr char kUnknownPiece[] = "\xEF\xBF\xBD";

std::vector<int32_t> encode_pieces(const std::string& prompt, const PieceTable& pieces) {
  PieceMerger::Encoded encoded = PieceMerger(pieces).encode(prompt);
  if (encoded.dropped > 0) {
    log_warning("the sample's prompt has bytes without a piece", {{"dropped", encoded.dropped}});
  }
  return std::move(encoded.ids);
}

Result<std::vector<int32_t>> encode(const std::string& prompt, const OpenedData& data) {
  std::vector<int32_t> tokens;
  if (data.text->options().width == TokenWidth::kByte) {
    for (const char c : prompt) tokens.push_back(static_cast<uint8_t>(c));
  } else if (data.pieces) {
    tokens = encode_pieces(prompt, *data.pieces);
  } else {
    std::istringstream words(prompt);
    for (int32_t token; words >> token;) tokens.push_back(token);
  }
  if (tokens.empty()) {
    tokens.resize(1);
    TRY(data.text->read(0, tokens));
  }
  return tokens;
}

std::string decode(const std::vector<int32_t>& tokens, const OpenedData& data) {
  std::string text;
  for (const int32_t token : tokens) {
    if (data.text->options().width == TokenWidth::kByte) {
      // A vocabulary may be larger than the bytes that training has shown it.
      text += token < 256 ? static_cast<char>(token) : '?';
    } else if (data.pieces) {
      text += token < data.pieces->count() ? data.pieces->piece(token) : kUnknownPiece;
    } else {
      text += (text.empty() ? "" : " ") + std::to_string(token);
    }
  }
  return text;
}

}  // namespace

Result<std::optional<std::string>> sample_text(parallel::Composition& model, const SampleSpec& spec,
                                               const OpenedData& data) {
  TRY_ASSIGN(std::vector<int32_t> tokens, encode(spec.prompt, data));
  TRY_ASSIGN(const std::optional<std::vector<int32_t>> more,
             model.generate({.prompt = tokens,
                             .tokens = spec.tokens,
                             .temperature = static_cast<float>(spec.temperature),
                             .top_k = spec.topK,
                             .seed = static_cast<uint64_t>(spec.seed)}));
  if (!more) return std::optional<std::string>();
  tokens.insert(tokens.end(), more->begin(), more->end());
  return std::optional(decode(tokens, data) + "\n");
}

void keep_sample(const std::string& text, const std::string& folder) {
  log_info("sample", {{"text", text}});
  if (folder.empty()) return;
  const Status written = write_file_synced(folder + "/sample.txt", text);
  if (written.ok()) return;
  log_warning("the sample can't be written", {{"reason", written.error().message}});
}

}  // namespace lockstep::train
