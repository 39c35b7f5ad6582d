#pragma once

#include <cstdint>
#include <string>

#include "cli/tokenize/tokenize_files.h"
#include "common/base/clock.h"

namespace lockstep::cli {

// Shows on stderr how far a text is encoded: one line that changes, or, where stderr is no
// terminal, a line every 5 seconds. One thread.
class TextProgress {
 public:
  // `bytes` of text in all; 0 if that is unknown. The clock outlives it.
  TextProgress(uint64_t bytes, const Clock& clock);
  // Ends the line.
  ~TextProgress();
  TextProgress(const TextProgress&) = delete;
  TextProgress& operator=(const TextProgress&) = delete;

  void show(const TokenizedCounts& counts);

 private:
  uint64_t bytes_;
  const Clock& clock_;
  const TimePoint begin_;
  TimePoint shown_;
  bool is_terminal_;
  bool has_line_ = false;
};

// Returns "41 %, 12.3 MB of 30.1 MB, 8.1 MB/s".
std::string text_progress_line(const TokenizedCounts& counts, uint64_t bytes, double seconds);

}  // namespace lockstep::cli
