#include "cli/tokenize/gpt2_vocabulary.h"

#include <cstddef>
#include <optional>
#include <unordered_set>
#include <utility>

#include "common/base/json.h"
#include "common/base/utf8.h"
#include "common/text/piece_table.h"

namespace lockstep::cli {
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;
constexpr size_t kTokensMax = size_t{1} << 20;
constexpr size_t kShownBytesMax = 64;

// The byte of each character of the alphabet, by code point; -1: not in the alphabet. Bytes that
// are visible in Latin-1 are themselves, the others follow from 256 on.
// Source: Radford et al., 2019 (GPT-2), encoder.py, bytes_to_unicode().
using Alphabet = std::array<int, 256 + 68>;

Alphabet make_alphabet() {
  Alphabet bytes;
  bytes.fill(-1);
  size_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    bytes[is_visible ? static_cast<size_t>(byte) : next++] = byte;
  }
  return bytes;
}

// Returns the bytes that a token stands for; nothing if a character is not in the alphabet. All
// its characters have at most two bytes.
std::optional<std::string> bytes_of(std::string_view token) {
  static const Alphabet kAlphabet = make_alphabet();
  std::string bytes;
  while (!token.empty()) {
    const size_t length = utf8_character_bytes(token);
    if (length == 0 || length > 2) return std::nullopt;
    size_t code = static_cast<uint8_t>(token[0]);
    if (length == 2) code = (code & 0x1F) << 6 | (static_cast<uint8_t>(token[1]) & 0x3F);
    if (code >= kAlphabet.size() || kAlphabet[code] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet[code]);
    token.remove_prefix(length);
  }
  return bytes;
}

std::string shown(std::string_view token) {
  return "\"" + utf8_elided(clean_utf8(token), kShownBytesMax) + "\"";
}

Error bad_token(const std::string& token, const std::string& reason) {
  return invalid("token " + shown(token) + ": " + reason);
}

Status add_token(const std::string& token, const Json& value, Gpt2Pieces& pieces,
                 std::vector<bool>& is_taken) {
  const size_t count = is_taken.size();
  if (!value.is_number_unsigned() || value.get<uint64_t>() >= count) {
    return bad_token(token, "found the id " + utf8_elided(dump_json(value), kShownBytesMax) +
                                ", expected 0 to " + std::to_string(count - 1) +
                                " in a vocabulary of " + std::to_string(count) + " tokens");
  }
  const auto id = value.get<size_t>();
  if (is_taken[id]) return bad_token(token, "another token has its id " + std::to_string(id));
  const std::optional<std::string> bytes = bytes_of(token);
  if (!bytes || bytes->empty()) {
    return bad_token(token, "expected characters of GPT-2's alphabet of bytes");
  }
  if (bytes->size() > PieceTable::kPieceBytesMax) {
    return bad_token(token, "found " + std::to_string(bytes->size()) + " bytes, expected at most " +
                                std::to_string(PieceTable::kPieceBytesMax));
  }
  is_taken[id] = true;
  if (bytes->size() == 1) {
    pieces.byte_ids[static_cast<uint8_t>(bytes->front())] = static_cast<int32_t>(id);
  }
  pieces.bytes[id] = *bytes;
  pieces.ids.emplace(token, static_cast<int32_t>(id));
  return {};
}

Error bad_line(size_t number, const std::string& reason) {
  return invalid("line " + std::to_string(number) + ": " + reason);
}

Result<Gpt2Merge> parse_merge(std::string_view line, size_t number, const Gpt2Pieces& pieces) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return bad_line(number, "found " + shown(line) + ", expected two tokens with a space between");
  }
  const std::string left(line.substr(0, space));
  const std::string right(line.substr(space + 1));
  Gpt2Merge merge;
  const std::pair<std::string, int32_t&> wanted[] = {
      {left, merge.left}, {right, merge.right}, {left + right, merge.merged}};
  for (const auto& [token, id] : wanted) {
    const auto found = pieces.ids.find(token);
    if (found == pieces.ids.end()) {
      return bad_line(number, "the vocabulary has no token " + shown(token));
    }
    id = found->second;
  }
  return merge;
}

}  // namespace

Result<Gpt2Pieces> parse_gpt2_vocabulary(std::string_view text) {
  TRY_ASSIGN(
      const Json document,
      parse_json(text, {.bytes_max = kFileBytesMax, .depth_max = 2, .values_max = kTokensMax + 1}));
  if (!document.is_object() || document.empty()) {
    return invalid("expected a JSON object from tokens to ids");
  }
  Gpt2Pieces pieces;
  pieces.bytes.resize(document.size());
  pieces.byte_ids.fill(-1);
  std::vector<bool> is_taken(document.size());
  for (const auto& [token, id] : document.items()) TRY(add_token(token, id, pieces, is_taken));
  for (size_t byte = 0; byte < pieces.byte_ids.size(); ++byte) {
    if (pieces.byte_ids[byte] < 0) {
      return invalid("no token stands for the byte " + std::to_string(byte) + " alone");
    }
  }
  return pieces;
}

Result<std::vector<Gpt2Merge>> parse_gpt2_merges(std::string_view text, const Gpt2Pieces& pieces) {
  if (text.size() > kFileBytesMax) {
    return invalid("found " + std::to_string(text.size()) + " bytes, expected at most " +
                   std::to_string(kFileBytesMax));
  }
  std::vector<Gpt2Merge> merges;
  std::unordered_set<uint64_t> pairs;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (number == 1 && line.starts_with("#version")) continue;
    if (line.empty() && text.empty()) break;
    TRY_ASSIGN(const Gpt2Merge merge, parse_merge(line, number, pieces));
    const uint64_t pair =
        static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
    if (!pairs.insert(pair).second) return bad_line(number, "an earlier line has this pair");
    merges.push_back(merge);
  }
  return merges;
}

}  // namespace lockstep::cli
