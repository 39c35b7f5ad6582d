#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/text/piece_table.h"

namespace lockstep::cli {

// A run of a file's bytes that is encoded on its own.
struct TextChunk {
  std::string_view text;
  bool is_first = true;  // of its file
};

// Turns chunks into token ids. One thread at a time.
class ChunkEncoder {
 public:
  virtual ~ChunkEncoder() = default;
  // Appends the chunk's ids. Takes any bytes.
  virtual Status encode(const TextChunk& chunk, std::vector<uint32_t>& ids) = 0;
};

// A way to write text as token ids. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Returns the text that each id stands for.
  virtual const PieceTable& pieces() const = 0;
  // Returns the id of a piece as the tokenizer's files write it; -1 if there is none.
  virtual int64_t id_of(const std::string& piece) const = 0;
  // Returns the length of a prefix of a text that goes on, such that encoding the prefix and what
  // follows apart gives the tokens of both together; 0 if there is no such place.
  virtual size_t cut(std::string_view text) const = 0;
  // The tokenizer outlives it.
  virtual std::unique_ptr<ChunkEncoder> encoder() const = 0;
};

}  // namespace lockstep::cli
