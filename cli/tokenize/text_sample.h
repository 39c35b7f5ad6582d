#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/tokenize/sentencepiece_model.h"
#include "cli/tokenize/text_files.h"
#include "common/base/result.h"

namespace lockstep::cli {

// The lines of files as sentences to train on. Longer text than `bytes_max` is sampled: equal
// blocks at equal distances. Sentences end at a newline, at a byte that they must not have, and
// before they would be too long, where possible at a space. One block is in memory.
class TextSample final : public SentenceSource {
 public:
  struct Options {
    std::span<const TextFile> files;  // regular ones, which outlive the sample
    uint64_t bytes_max = 0;
    size_t block_bytes = size_t{1} << 20;
  };
  explicit TextSample(const Options& options);

  // Bytes of the files that it reads.
  uint64_t bytes() const;
  Result<bool> next(std::string& sentence) override;

 private:
  Status read_block();

  Options options_;
  uint64_t total_ = 0;
  uint64_t blocks_ = 0;
  uint64_t next_block_ = 0;
  std::string block_;
  size_t at_ = 0;  // in block_
};

}  // namespace lockstep::cli
