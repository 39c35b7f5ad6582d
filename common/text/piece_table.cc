#include "common/text/piece_table.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/crc32c.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "LSPIECE1";
constexpr size_t kCountAt = 8;
constexpr size_t kTextBytesAt = 12;
constexpr size_t kEndsAt = 16;
constexpr size_t kChecksumBytes = 4;

void put_u32(uint32_t value, std::string& to) {
  for (int shift = 0; shift < 32; shift += 8) to += static_cast<char>(value >> shift & 0xFF);
}

uint32_t u32_at(std::string_view file, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(file[at + i]);
  return value;
}

Error broken(size_t offset, const std::string& reason) {
  return invalid("byte " + std::to_string(offset) + ": " + reason);
}

std::string text(size_t value) {
  return std::to_string(value);
}

// Checks everything before the ends of the pieces, and the length of the file.
Status check_head(std::string_view file) {
  if (!file.starts_with(kMagic)) return broken(0, "not a piece table, expected LSPIECE1");
  if (file.size() < kEndsAt + kChecksumBytes) {
    return broken(file.size(), "the file ends, expected at least 20 bytes");
  }
  const size_t count = u32_at(file, kCountAt);
  const size_t text_bytes = u32_at(file, kTextBytesAt);
  if (count == 0 || count > PieceTable::kPiecesMax) {
    return broken(kCountAt, "found " + text(count) + " pieces, expected 1 to " +
                                text(PieceTable::kPiecesMax));
  }
  if (text_bytes > PieceTable::kTextBytesMax) {
    return broken(kTextBytesAt, "found " + text(text_bytes) +
                                    " bytes of pieces, expected at most " +
                                    text(PieceTable::kTextBytesMax));
  }
  const size_t bytes = kEndsAt + 4 * count + text_bytes + kChecksumBytes;
  if (file.size() != bytes) {
    return broken(file.size(), "the file ends, expected " + text(bytes) + " bytes for " +
                                   text(count) + " pieces of " + text(text_bytes) + " bytes");
  }
  return {};
}

}  // namespace

Result<PieceTable> PieceTable::create(std::span<const std::string> pieces) {
  if (pieces.empty() || pieces.size() > kPiecesMax) {
    return invalid("found " + text(pieces.size()) + " pieces, expected 1 to " + text(kPiecesMax));
  }
  std::vector<uint32_t> ends;
  std::string all;
  for (size_t id = 0; id < pieces.size(); ++id) {
    const std::string& piece = pieces[id];
    if (piece.size() > kPieceBytesMax || all.size() + piece.size() > kTextBytesMax) {
      return invalid("piece " + text(id) + ": found " + text(piece.size()) +
                     " bytes, expected at most " + text(kPieceBytesMax) + ", and at most " +
                     text(kTextBytesMax) + " in all pieces");
    }
    all += piece;
    ends.push_back(static_cast<uint32_t>(all.size()));
  }
  return PieceTable(std::move(ends), std::move(all));
}

Result<PieceTable> PieceTable::parse(std::string_view file) {
  TRY(check_head(file));
  const size_t count = u32_at(file, kCountAt);
  const size_t text_bytes = u32_at(file, kTextBytesAt);
  const size_t checksum_at = file.size() - kChecksumBytes;
  if (u32_at(file, checksum_at) != crc32c(file.data(), checksum_at)) {
    return broken(checksum_at, "the checksum is not that of the bytes before it");
  }
  std::vector<uint32_t> ends(count);
  size_t before = 0;
  for (size_t id = 0; id < count; ++id) {
    const size_t end = u32_at(file, kEndsAt + 4 * id);
    if (end < before || end > text_bytes || end - before > kPieceBytesMax) {
      return broken(kEndsAt + 4 * id, "piece " + text(id) + " ends at " + text(end) +
                                          ", expected from " + text(before) + " to " +
                                          text(before + kPieceBytesMax) + " and at most " +
                                          text(text_bytes));
    }
    ends[id] = static_cast<uint32_t>(end);
    before = end;
  }
  if (before != text_bytes) {
    return broken(kEndsAt + 4 * (count - 1),
                  "the last piece ends at " + text(before) + ", expected " + text(text_bytes));
  }
  return PieceTable(std::move(ends), std::string(file.substr(kEndsAt + 4 * count, text_bytes)));
}

std::string PieceTable::format() const {
  std::string file(kMagic);
  put_u32(static_cast<uint32_t>(ends_.size()), file);
  put_u32(static_cast<uint32_t>(text_.size()), file);
  for (const uint32_t end : ends_) put_u32(end, file);
  file += text_;
  put_u32(crc32c(file.data(), file.size()), file);
  return file;
}

std::string_view PieceTable::piece(int64_t id) const {
  CHECK(id >= 0 && id < count());
  const auto index = static_cast<size_t>(id);
  const size_t begin = index == 0 ? 0 : ends_[index - 1];
  return std::string_view(text_).substr(begin, ends_[index] - begin);
}

}  // namespace lockstep
