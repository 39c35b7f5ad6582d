#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// The agent's own stdout for the lines of all workers, without ever waiting for its reader: what it
// doesn't take waits in a bounded queue, and what that can't hold is dropped and counted.
class OutputQueue {
 public:
  explicit OutputQueue(int fd, size_t bytes_max = 256 * 1024) : fd_(fd), bytes_max_(bytes_max) {}

  void push(std::string_view line);  // ends with '\n'
  // Writes as much as the descriptor takes at once.
  void flush();
  bool pending() const { return at_ < queue_.size(); }
  int fd() const { return fd_; }

 private:
  bool writable() const;  // or broken: a write doesn't wait

  int fd_;
  size_t bytes_max_;
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
