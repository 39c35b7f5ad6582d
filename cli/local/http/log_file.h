#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/result.h"

namespace lockstep::local {

struct LogFileOptions {
  std::optional<int64_t> tail_lines;   // begin with the last so many lines
  std::optional<int64_t> limit_bytes;  // and end after so many bytes
};

// Reads a file that may still be appended to, from where `kubectl logs` wants to begin. Its start
// may be a hole, where old output was given up: that is passed over.
class LogFile {
 public:
  // kNotFound, kUnavailable: it can't be opened.
  static Result<LogFile> open(const std::string& file, const LogFileOptions& options);
  ~LogFile();
  LogFile(LogFile&& other) noexcept;
  LogFile& operator=(LogFile&&) = delete;

  // At most `bytes_max` of what comes next; empty: there is no more for now.
  std::string read(size_t bytes_max);
  // limit_bytes were read.
  bool is_over() const { return left_ == 0; }

 private:
  LogFile(int fd, int64_t position, int64_t left) : fd_(fd), position_(position), left_(left) {}

  int fd_;
  int64_t position_;
  int64_t left_;
};

}  // namespace lockstep::local
