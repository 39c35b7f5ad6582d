#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/text/piece_table.h"

namespace lockstep {

// Writes text as pieces of a table, without the tokenizer that the table comes from: begins with
// the characters (or the bytes, for characters that are no piece), and merges the adjacent pair
// whose text is the piece with the lowest id, as long as there is one. Byte-pair encodings number
// their pieces in the order of their merges, so that this gives their tokens for most texts. Other
// tokenizers may choose other pieces of the same text. Thread-safe.
class PieceMerger {
 public:
  // The table outlives it.
  explicit PieceMerger(const PieceTable& table);

  struct Encoded {
    std::vector<int32_t> ids;
    int64_t dropped = 0;  // bytes of the text that are no piece
  };
  // Takes time n log n in the bytes of the text.
  Encoded encode(std::string_view text) const;

 private:
  int32_t id_of(std::string_view piece) const;  // -1: none

  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace lockstep
