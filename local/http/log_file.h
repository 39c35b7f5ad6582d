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
  std::optional<int64_t> tail_lines;   // begin with the last so many lines
  std::optional<WallTime> since;       // of those that began at this time or later
  std::optional<int64_t> limit_bytes;  // and end after so many bytes, times included
  bool timestamps = false;             // each line begins with when it came
};

// Reads a file that may still be appended to, from where `kubectl logs` wants to begin. Its start
// may be a hole, where old output was given up: that is passed over.
class LogFile {
 public:
  // kNotFound, kUnavailable: it, or where times matter the file of its times, can't be opened.
  static Result<LogFile> open(const std::string& file, const LogFileOptions& options);
  ~LogFile();
  LogFile(LogFile&& other) noexcept;
  LogFile& operator=(LogFile&&) = delete;

  // What comes next: at most `bytes_max` of the file, where times are shown only what has one;
  // empty: there is no more for now.
  std::string read(size_t bytes_max);
  // limit_bytes were read.
  bool is_over() const { return left_ == 0; }

 private:
  LogFile(int fd, int64_t position, int64_t left, std::optional<LogTimes> times)
      : fd_(fd), position_(position), left_(left), times_(std::move(times)) {}
  std::string with_times(std::string_view text);

  int fd_;
  int64_t position_;
  int64_t left_;
  std::optional<LogTimes> times_;  // where they are shown
  bool begins_line_ = true;
};

}  // namespace lockstep::local
