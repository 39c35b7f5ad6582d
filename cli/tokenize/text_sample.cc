#include "cli/tokenize/text_sample.h"

#include <algorithm>
#include <string_view>

#include "common/base/check.h"
#include "common/base/utf8.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // sentencepiece's own

// Returns the length of the sentence at the start of the text; 0 if it begins with a byte that is
// in no sentence.
size_t sentence_bytes(std::string_view text) {
  size_t bytes = 0;
  size_t last_space = 0;
  while (bytes < text.size() && text[bytes] != '\n' &&
         !text.substr(bytes).starts_with(kSpaceMark)) {
    const size_t next = utf8_character_bytes(text.substr(bytes));
    if (next == 0) break;
    if (bytes + next > SentenceSource::kSentenceBytesMax)
      return last_space > 0 ? last_space : bytes;
    if (text[bytes] == ' ') last_space = bytes;
    bytes += next;
  }
  return bytes;
}

}  // namespace

TextSample::TextSample(const Options& options)
    : options_(options), total_(bytes_of(options.files)) {
  CHECK(options_.block_bytes > 0);
  blocks_ =
      (std::min(total_, options_.bytes_max) + options_.block_bytes - 1) / options_.block_bytes;
}

uint64_t TextSample::bytes() const {
  return std::min(total_, blocks_ * options_.block_bytes);
}

Result<bool> TextSample::next(std::string& sentence) {
  for (;;) {
    while (at_ < block_.size()) {
      const std::string_view text = std::string_view(block_).substr(at_);
      const size_t bytes = sentence_bytes(text);
      at_ += std::max<size_t>(bytes, 1);
      if (bytes == 0) continue;
      sentence = text.substr(0, bytes);
      return true;
    }
    if (next_block_ == blocks_) return false;
    TRY(read_block());
  }
}

// The last block ends where the text ends, all others begin at equal distances before it. A
// sentence that a block cuts is cut for training too.
Status TextSample::read_block() {
  const uint64_t index = next_block_++;
  const uint64_t room = total_ - std::min<uint64_t>(total_, options_.block_bytes);
  const bool is_all = blocks_ * options_.block_bytes >= total_;
  uint64_t begin = index * options_.block_bytes;
  if (!is_all && blocks_ > 1) {
    const uint64_t gaps = blocks_ - 1;
    begin = room / gaps * index + room % gaps * index / gaps;
  }
  uint64_t left = std::min<uint64_t>(options_.block_bytes, total_ - begin);
  block_.clear();
  at_ = 0;
  for (const TextFile& file : options_.files) {
    if (begin >= file.bytes) {
      begin -= file.bytes;
      continue;
    }
    if (left == 0) break;
    const size_t before = block_.size();
    block_.resize(before + static_cast<size_t>(std::min(left, file.bytes - begin)));
    TRY_ASSIGN(InputFile opened, InputFile::open(file.path));
    TRY_ASSIGN(const size_t now, opened.read_at(begin, std::span(block_).subspan(before)));
    block_.resize(before + now);
    left -= now;
    begin = 0;
    if (now == 0) break;           // the file has become shorter
    if (left > 0) block_ += '\n';  // no sentence reaches into the next file
  }
  return {};
}

}  // namespace lockstep::cli
