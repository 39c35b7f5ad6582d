#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep::local {

// Arrival times of a container's output. Each log has a hidden file in the same folder with 16-byte
// records, oldest first. A record says how many bytes the log had by a certain time; neither value
// ever decreases. As in the log, the start of the file may be a hole, where old records were
// discarded. The file is read on the machine that wrote it.
struct LogTimeRecord {
  int64_t bytes = 0;
  int64_t nanoseconds = 0;  // since 1970
};

// Returns "/logs/.node.log.times" for "/logs/node.log".
std::string times_file_of(const std::string& log);

// Creates the file if it does not exist: no output has arrived yet.
void begin_times(const std::string& times_file);
// Appends a record. Drops it if the disk is full.
void append_time_record(const std::string& times_file, const LogTimeRecord& record);

// Reads a file of arrival times, which may still grow.
class LogTimes {
 public:
  // kNotFound or kUnavailable if the file can't be opened.
  static Result<LogTimes> open(const std::string& times_file);
  ~LogTimes();
  LogTimes(LogTimes&& other) noexcept;
  LogTimes& operator=(LogTimes&&) = delete;

  // Returns the number of bytes from the start of the log whose arrival times are known.
  int64_t bytes_known() const;
  // Returns how many bytes had arrived before that time.
  int64_t bytes_before(int64_t nanoseconds) const;
  // Returns when the byte at this offset arrived; the offset must be below bytes_known(). Fast if
  // offsets grow from call to call.
  int64_t seen(int64_t offset);
  // Returns the index of the first record with more than `bytes` bytes, or end_index().
  int64_t index_after(int64_t bytes) const;
  // Indexes of the first record after the hole, and one past the last record.
  int64_t first_index() const;
  int64_t end_index() const;
  LogTimeRecord at(int64_t index) const;

 private:
  explicit LogTimes(int fd) : fd_(fd) {}
  template <class Predicate>
  int64_t first_where(Predicate holds) const;

  int fd_;
  std::vector<LogTimeRecord>
      block_;  // consecutive records; the first one has more than `from_` bytes
  int64_t from_ = 0;
};

}  // namespace lockstep::local
