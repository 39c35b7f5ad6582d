#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"

namespace lockstep::node {

struct OutputLimits {
  size_t bytes_max = 8u << 20;                    // beyond this, lines are dropped
  size_t pause_reading_above_bytes = 256u << 10;  // beyond this, reading from the workers pauses
  Duration stall_limit =
      std::chrono::seconds(2);  // how long to wait for a reader that takes nothing
};

// Writes the lines of all workers to the agent's stdout without ever blocking on its reader.
// Unwritten lines wait in a bounded queue; lines that do not fit are dropped and counted. With a
// slow reader nothing is lost: reading from the workers pauses (has_room()) until there is room. A
// reader that takes nothing delays the workers by at most `stall_limit`.
class OutputQueue {
 public:
  explicit OutputQueue(int fd, OutputLimits limits = {}) : fd_(fd), limits_(limits) {}

  void push(std::string_view line);  // `line` ends with '\n'
  // Writes as much as the descriptor accepts without blocking.
  void flush();
  // Returns whether to keep reading from the workers: there is room, or the reader takes nothing.
  bool has_room(TimePoint now);
  bool pending() const { return at_ < queue_.size(); }
  int fd() const { return fd_; }

 private:
  bool writable() const;  // also true if broken: a write does not block

  int fd_;
  OutputLimits limits_;
  std::optional<TimePoint> full_since_;  // the queue has been full, and the reader idle, since then
  uint64_t taken_ = 0;                   // bytes written to the reader; taken_then_: at full_since_
  uint64_t taken_then_ = 0;
  std::string queue_;
  size_t at_ = 0;  // offset of the first unwritten byte
  uint64_t dropped_ = 0;
};

struct WorkerLogOptions {
  std::string path;                   // empty: no file
  std::string prefix;                 // for every line on the agent's stdout: "[rank 3] "
  size_t file_bytes_max = 8u << 20;   // then it is renamed to <path>.1 and a new one begins
  size_t line_bytes_max = 16 * 1024;  // longer lines are split
  size_t tail_bytes_max = 2048;
};

// Handles the output of one worker, line by line: cleans it to UTF-8, writes it to the worker's
// file and, with a prefix, to the queue, and keeps the last part in memory. If the file cannot be
// written, reports it once and stops writing to it.
class WorkerLog {
 public:
  WorkerLog(WorkerLogOptions options, OutputQueue* output);
  WorkerLog(const WorkerLog&) = delete;
  WorkerLog& operator=(const WorkerLog&) = delete;
  ~WorkerLog();

  void append(std::string_view chunk);
  // Treats a rest without a newline as a line.
  void finish();
  const std::string& tail() const { return tail_; }

 private:
  void take_line(std::string_view line);
  void write_file(std::string_view line);
  void open_file();
  void fail(const char* what);

  WorkerLogOptions options_;
  OutputQueue* output_;
  std::string partial_;
  std::string tail_;
  int fd_ = -1;
  size_t file_bytes_ = 0;
};

}  // namespace lockstep::node
