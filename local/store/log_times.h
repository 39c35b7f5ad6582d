#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep::local {

// When the output of a container came. Beside a log lies a hidden file of records of 16 bytes,
// oldest first, each of which says that by a time the log had so many bytes; both never shrink from
// one record to the next. As the log's, the beginning of that file may be a hole, where old records
// were given up. It is read on the machine that wrote it.
struct LogMoment {
  int64_t bytes = 0;
  int64_t nanoseconds = 0;  // since 1970
};

// "/logs/node.log" has "/logs/.node.log.times".
std::string times_file_of(const std::string& log);

// Makes the file, if it is not there: nothing came yet.
void begin_times(const std::string& times_file);
// Appends a record; where the disk is full the moment is lost.
void append_moment(const std::string& times_file, const LogMoment& moment);

// Reads such a file while it may be appended to.
class LogTimes {
 public:
  // kNotFound, kUnavailable: it can't be opened.
  static Result<LogTimes> open(const std::string& times_file);
  ~LogTimes();
  LogTimes(LogTimes&& other) noexcept;
  LogTimes& operator=(LogTimes&&) = delete;

  // The beginning of the log of which it is known when it came.
  int64_t bytes_known() const;
  // How many bytes had come before that time.
  int64_t bytes_before(int64_t nanoseconds) const;
  // When the byte at this offset, which is known, was seen. Fast where offsets grow from call to
  // call.
  int64_t seen(int64_t offset);
  // The first record that says more than `bytes` bytes; one beyond the last where none does.
  int64_t index_after(int64_t bytes) const;
  // Those in the file, the first beyond the hole.
  int64_t first_index() const;
  int64_t end_index() const;
  LogMoment at(int64_t index) const;

 private:
  explicit LogTimes(int fd) : fd_(fd) {}
  template <class Predicate>
  int64_t first_where(Predicate holds) const;

  int fd_;
  std::vector<LogMoment> block_;  // records in a row, the first that says more than `from_`
  int64_t from_ = 0;
};

}  // namespace lockstep::local
