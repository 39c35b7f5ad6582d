#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

// A piece table says which bytes of text each token id stands for. docs/formats.md describes its
// file. Plain values; reading is thread-safe.
class PieceTable {
 public:
  static constexpr size_t kPiecesMax = size_t{1} << 24;
  static constexpr size_t kPieceBytesMax = 1024;
  static constexpr size_t kTextBytesMax = size_t{1} << 28;  // of all pieces
  static constexpr size_t kFileBytesMax = 20 + 4 * kPiecesMax + kTextBytesMax;

  // Ids are the indices of `pieces`; an empty piece stands for no text. kInvalid if there is none,
  // or if there are more, or longer ones, than the limits above.
  static Result<PieceTable> create(std::span<const std::string> pieces);
  // Reads a whole file. kInvalid with the byte offset and the reason. Takes no more memory than the
  // file.
  static Result<PieceTable> parse(std::string_view file);
  // The bytes of its file.
  std::string format() const;

  int64_t count() const { return static_cast<int64_t>(ends_.size()); }
  // `id` is in [0, count()). Valid as long as the table.
  std::string_view piece(int64_t id) const;

 private:
  PieceTable(std::vector<uint32_t> ends, std::string text)
      : ends_(std::move(ends)), text_(std::move(text)) {}

  std::vector<uint32_t> ends_;  // of each piece in text_
  std::string text_;
};

}  // namespace lockstep
