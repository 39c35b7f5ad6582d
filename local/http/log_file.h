#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "local/store/log_times.h"

namespace lockstep::local {

struct LogFileOptions {
  std::optional<int64_t> tail_lines;   // start with this many last lines
  std::optional<WallTime> since;       // only lines that began at or after this time
  std::optional<int64_t> limit_bytes;  // stop after this many bytes, timestamps included
  bool timestamps = false;             // prefix each line with its arrival time
};

// Reads a log file that may still grow, from where `kubectl logs` wants to begin. Skips a hole at
// the start of the file, where old output was discarded.
class LogFile {
 public:
  // kNotFound or kUnavailable if the log, or the file with its times if they are needed, can't be
  // opened.
  static Result<LogFile> open(const std::string& file, const LogFileOptions& options);
  ~LogFile();
  LogFile(LogFile&& other) noexcept;
  LogFile& operator=(LogFile&&) = delete;

  // Reads the next bytes of the file, at most `bytes_max`; returns "" if there is nothing more for
  // now. With timestamps, returns only bytes whose arrival time is known.
  std::string read(size_t bytes_max);
  // True once limit_bytes have been read.
  bool is_over() const { return left_ == 0; }

 private:
  LogFile(int fd, int64_t position, int64_t left, std::optional<LogTimes> times)
      : fd_(fd), position_(position), left_(left), times_(std::move(times)) {}
  std::string with_times(std::string_view text);

  int fd_;
  int64_t position_;
  int64_t left_;
  std::optional<LogTimes> times_;  // set if timestamps are shown
  bool begins_line_ = true;
};

}  // namespace lockstep::local
