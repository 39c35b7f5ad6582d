#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "cli/tokenize/text_files.h"
#include "cli/tokenize/tokenizer.h"
#include "common/base/result.h"

namespace lockstep::cli {

struct TokenizeOptions {
  std::span<const TextFile> files;  // outlive the call
  std::optional<uint32_t> end;      // id that follows each file
  size_t threads = 1;
  // Bytes of text that a thread encodes at a time, at least 16.
  size_t chunk_bytes = size_t{1} << 20;
};

struct TokenizedCounts {
  uint64_t bytes = 0;  // of text
  uint64_t tokens = 0;
};

// Encodes files one after another, and hands their ids to `sink` in order, from the calling thread.
// The ids do not depend on the number of threads. They depend on chunk_bytes only if a text has no
// place to cut it (Tokenizer::cut) within as many bytes; such a text is cut between two characters.
// Holds two chunks a thread in memory. `progress` is called with the counts so far after each
// chunk, and ends the work by an error. Errors name the file.
Result<TokenizedCounts> tokenize_files(
    const Tokenizer& tokenizer, const TokenizeOptions& options,
    const std::function<Status(std::span<const uint32_t> ids)>& sink,
    const std::function<Status(const TokenizedCounts&)>& progress);

}  // namespace lockstep::cli
