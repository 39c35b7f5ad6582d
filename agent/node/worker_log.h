#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"

namespace lockstep {

struct OutputLimits {
  size_t bytes_max = 8u << 20;     // then lines are dropped
  size_t hold_bytes = 256u << 10;  // from here on the workers' next output had better wait
  Duration patience = std::chrono::seconds(2);  // with a reader that takes nothing
};

// The agent's own stdout for the lines of all workers, without ever waiting for its reader: what it
// doesn't take waits in a bounded queue, and what that can't hold is dropped and counted. A reader
// that is slow loses nothing, since the workers' pipes fill up meanwhile (has_room()); one that
// takes nothing at all doesn't stop them for longer than `patience`.
class OutputQueue {
 public:
  explicit OutputQueue(int fd, OutputLimits limits = {}) : fd_(fd), limits_(limits) {}

  void push(std::string_view line);  // ends with '\n'
  // Writes as much as the descriptor takes at once.
  void flush();
  // Whether to read on from the workers: there is room, or nobody takes anything.
  bool has_room(TimePoint now);
  bool pending() const { return at_ < queue_.size(); }
  int fd() const { return fd_; }

 private:
  bool writable() const;  // or broken: a write doesn't wait

  int fd_;
  OutputLimits limits_;
  std::optional<TimePoint> full_since_;  // and the reader took nothing from then on
  uint64_t taken_ = 0;                   // bytes that it took, and when full_since_ was set
  uint64_t taken_then_ = 0;
  std::string queue_;
  size_t at_ = 0;  // written up to here
  uint64_t dropped_ = 0;
};

struct WorkerLogOptions {
  std::string path;                   // empty: no file
  std::string prefix;                 // of every line on the agent's stdout: "[rank 3] "
  size_t file_bytes_max = 8u << 20;   // then it becomes <path>.1, and a new one begins
  size_t line_bytes_max = 16 * 1024;  // longer lines are broken
  size_t tail_bytes_max = 2048;
};

// What one worker prints: line by line as clean UTF-8 into its file and, with a prefix, to the
// queue; its end stays in memory. A file that can't be written is reported once and left alone.
class WorkerLog {
 public:
  WorkerLog(WorkerLogOptions options, OutputQueue* output);
  WorkerLog(const WorkerLog&) = delete;
  WorkerLog& operator=(const WorkerLog&) = delete;
  ~WorkerLog();

  void append(std::string_view chunk);
  // The rest without an end of line counts as one.
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

}  // namespace lockstep
