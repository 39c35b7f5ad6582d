#include "local/http/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <utility>

namespace lockstep::local {
namespace {

// Returns where the last `lines` lines begin, at least `first`. An unfinished line counts as one.
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

// Returns where the first line begins that starts at or after `from`.
int64_t start_of_line(int fd, int64_t first, int64_t end, int64_t from) {
  if (from <= first) return first;
  std::array<char, 16 << 10> block;
  for (int64_t at = from - 1; at < end;) {
    const int64_t bytes = std::min<int64_t>(block.size(), end - at);
    if (pread(fd, block.data(), static_cast<size_t>(bytes), at) != bytes) return end;
    const char* found = std::find(block.data(), block.data() + bytes, '\n');
    if (found != block.data() + bytes) return at + (found - block.data()) + 1;
    at += bytes;
  }
  return end;
}

// Formats a time as a kubelet does: RFC 3339 with nine fractional digits.
std::string time_of_line(int64_t nanoseconds) {
  const WallTime time{Duration(nanoseconds)};
  std::string text = rfc3339(time);
  char rest[16];
  std::snprintf(rest, sizeof rest, ".%09dZ ", static_cast<int>(nanoseconds % 1'000'000'000));
  return text.replace(text.size() - 1, 1, rest);
}

int64_t nanoseconds_of(WallTime time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

}  // namespace

Result<LogFile> LogFile::open(const std::string& file, const LogFileOptions& options) {
  std::optional<LogTimes> times;
  if (options.timestamps || options.since) {
    TRY_ASSIGN(LogTimes opened, LogTimes::open(times_file_of(file)));
    times.emplace(std::move(opened));
  }
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_error("[log] " + file, errno);
  const int64_t end = lseek(fd, 0, SEEK_END);
  int64_t first = lseek(fd, 0, SEEK_DATA);
  if (first < 0) first = errno == ENXIO ? end : 0;  // all hole, or holes are unsupported
  int64_t position =
      options.tail_lines ? start_of_tail(fd, first, end, *options.tail_lines) : first;
  if (options.since) {
    const int64_t before = times->bytes_before(nanoseconds_of(*options.since));
    position = std::max(position, start_of_line(fd, first, end, before));
  }
  if (!options.timestamps) times.reset();
  return LogFile(fd, position, options.limit_bytes.value_or(std::numeric_limits<int64_t>::max()),
                 std::move(times));
}

LogFile::LogFile(LogFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      position_(other.position_),
      left_(other.left_),
      times_(std::move(other.times_)),
      begins_line_(other.begins_line_) {}

LogFile::~LogFile() {
  if (fd_ >= 0) close(fd_);
}

std::string LogFile::with_times(std::string_view text) {
  std::string lines;
  for (int64_t at = position_; !text.empty();) {
    if (begins_line_) lines += time_of_line(times_->seen(at));
    const size_t newline = text.find('\n');
    begins_line_ = newline != std::string_view::npos;
    const size_t bytes = begins_line_ ? newline + 1 : text.size();
    lines += text.substr(0, bytes);
    text.remove_prefix(bytes);
    at += static_cast<int64_t>(bytes);
  }
  return lines;
}

std::string LogFile::read(size_t bytes_max) {
  int64_t room = std::min(static_cast<int64_t>(bytes_max), left_);
  if (times_) room = std::min(room, times_->bytes_known() - position_);
  std::string text(static_cast<size_t>(std::max<int64_t>(room, 0)), '\0');
  const ssize_t bytes = pread(fd_, text.data(), text.size(), position_);
  text.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  std::string shown = times_ ? with_times(text) : text;
  position_ += static_cast<int64_t>(text.size());
  if (static_cast<int64_t>(shown.size()) > left_) shown.resize(static_cast<size_t>(left_));
  left_ -= static_cast<int64_t>(shown.size());
  return shown;
}

}  // namespace lockstep::local
