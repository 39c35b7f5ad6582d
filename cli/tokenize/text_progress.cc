#include "cli/tokenize/text_progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace lockstep::cli {
namespace {

constexpr Duration kTerminalPeriod = std::chrono::milliseconds(200);
constexpr Duration kLogPeriod = std::chrono::seconds(5);

std::string megabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", bytes / 1e6);
  return text;
}

}  // namespace

std::string text_progress_line(const TokenizedCounts& counts, uint64_t bytes, double seconds) {
  const auto done = static_cast<double>(counts.bytes);
  std::string line = megabytes(done);
  if (bytes > 0) {
    const double percent = std::min(100.0, 100 * done / static_cast<double>(bytes));
    line = std::to_string(static_cast<int>(percent)) + " %, " + line + " of " +
           megabytes(static_cast<double>(bytes));
  }
  return seconds > 0 ? line + ", " + megabytes(done / seconds) + "/s" : line;
}

TextProgress::TextProgress(uint64_t bytes, const Clock& clock)
    : bytes_(bytes),
      clock_(clock),
      begin_(clock.now()),
      shown_(begin_),
      is_terminal_(isatty(STDERR_FILENO) == 1) {}

TextProgress::~TextProgress() {
  if (has_line_) std::fputs("\r\033[K", stderr);
}

void TextProgress::show(const TokenizedCounts& counts) {
  const TimePoint now = clock_.now();
  if (now - shown_ < (is_terminal_ ? kTerminalPeriod : kLogPeriod)) return;
  shown_ = now;
  const std::string line = text_progress_line(counts, bytes_, to_seconds(now - begin_));
  std::fprintf(stderr, is_terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
  has_line_ = is_terminal_;
}

}  // namespace lockstep::cli
