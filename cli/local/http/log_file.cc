#include "cli/local/http/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

namespace lockstep::local {
namespace {

// Where the last `lines` lines begin, not before `first`; an unfinished line counts as one.
int64_t start_of_tail(int fd, int64_t first, int64_t end, int64_t lines) {
  if (lines == 0) return end;
  std::array<char, 16 << 10> block;
  int64_t seen = 0;
  for (int64_t at = end; at > first;) {
    const int64_t bytes = std::min<int64_t>(block.size(), at - first);
    if (pread(fd, block.data(), static_cast<size_t>(bytes), at - bytes) != bytes) return at;
    at -= bytes;
    for (int64_t i = bytes - 1; i >= 0; --i) {
      const bool ends_a_line_before = block[static_cast<size_t>(i)] == '\n' && at + i + 1 < end;
      if (ends_a_line_before && ++seen == lines) return at + i + 1;
    }
  }
  return first;
}

}  // namespace

Result<LogFile> LogFile::open(const std::string& file, const LogFileOptions& options) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_error("[log] " + file, errno);
  const int64_t end = lseek(fd, 0, SEEK_END);
  int64_t first = lseek(fd, 0, SEEK_DATA);
  if (first < 0) first = errno == ENXIO ? end : 0;  // nothing but a hole, or no notion of holes
  const int64_t position =
      options.tail_lines ? start_of_tail(fd, first, end, *options.tail_lines) : first;
  return LogFile(fd, position, options.limit_bytes.value_or(std::numeric_limits<int64_t>::max()));
}

LogFile::LogFile(LogFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), position_(other.position_), left_(other.left_) {}

LogFile::~LogFile() {
  if (fd_ >= 0) close(fd_);
}

std::string LogFile::read(size_t bytes_max) {
  std::string text(std::min(bytes_max, static_cast<size_t>(left_)), '\0');
  const ssize_t bytes = pread(fd_, text.data(), text.size(), position_);
  text.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  position_ += static_cast<int64_t>(text.size());
  left_ -= static_cast<int64_t>(text.size());
  return text;
}

}  // namespace lockstep::local
