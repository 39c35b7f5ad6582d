#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/train/data/mapped_file.h"
#include "common/base/result.h"

namespace lockstep::train {

// How a file's bytes encode tokens: text, one token per byte, or little-endian token ids.
enum class TokenWidth : uint8_t { kByte = 1, kU16 = 2, kU32 = 4 };

// "bytes", "u16", "u32"; kInvalid, blaming the configuration, for any other name.
Result<TokenWidth> token_width(const std::string& tokenizer);

struct TokenSourceOptions {
  std::string path;  // a regular file, or a folder whose regular files count in the order of names
  TokenWidth width = TokenWidth::kByte;
  int64_t vocabulary = 256;
};

// The tokens of one file or of a folder's files, one after the other, mapped into memory: nothing
// is read before it is asked for. Reading is thread-safe. Errors blame the data. A file that
// shrinks while it is mapped ends the process with SIGBUS, as mmap(2) has it.
class TokenSource {
 public:
  // kNotFound for a path that isn't there, kInvalid for a folder without files or a size that is no
  // multiple of the token's; each names the path.
  static Result<TokenSource> open(const TokenSourceOptions& options);

  int64_t count() const { return count_; }
  const TokenSourceOptions& options() const { return options_; }

  // Tokens [begin, begin + out.size()), within [0, count()). kInvalid with file and offset for a
  // token id >= vocabulary.
  Status read(int64_t begin, std::span<int32_t> out) const;

 private:
  // A file's tokens. `first` is the index of its first one in the whole.
  struct Part {
    std::shared_ptr<const MappedFile> file;
    int64_t first = 0;
    int64_t count = 0;
  };
  explicit TokenSource(TokenSourceOptions options) : options_(std::move(options)) {}
  Status add_file(const std::string& file);
  Status read_part(const Part& part, int64_t from, std::span<int32_t> out) const;

  TokenSourceOptions options_;
  std::vector<Part> parts_;
  int64_t count_ = 0;
};

}  // namespace lockstep::train
