#include "agent/node/worker_log.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/base/log.h"
#include "common/base/utf8.h"

namespace lockstep::node {

void OutputQueue::push(std::string_view line) {
  if (at_ == queue_.size()) {
    queue_.clear();
    at_ = 0;
  }
  if (queue_.size() - at_ + line.size() > limits_.bytes_max) {
    ++dropped_;
    return;
  }
  if (dropped_ > 0) {
    queue_ += "[agent] " + std::to_string(std::exchange(dropped_, 0)) +
              " lines dropped: the reader was too slow; the log files have them\n";
  }
  queue_ += line;
}

// Polls instead of setting O_NONBLOCK, which would affect everybody who shares the open file. A
// pipe that polls writable accepts PIPE_BUF bytes without blocking (pipe(7)).
bool OutputQueue::writable() const {
  pollfd poll_fd = {fd_, POLLOUT, 0};
  return poll(&poll_fd, 1, 0) == 1;
}

void OutputQueue::flush() {
  while (pending() && writable()) {
    const size_t bytes = std::min<size_t>(queue_.size() - at_, PIPE_BUF);
    const ssize_t written = write(fd_, queue_.data() + at_, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {  // the reader is gone
      queue_.clear();
      at_ = 0;
      return;
    }
    at_ += static_cast<size_t>(written);
    taken_ += static_cast<size_t>(written);
  }
  if (at_ > limits_.pause_reading_above_bytes) queue_.erase(0, std::exchange(at_, 0));
}

bool OutputQueue::has_room(TimePoint now) {
  if (queue_.size() - at_ <= limits_.pause_reading_above_bytes) {
    full_since_.reset();
    return true;
  }
  if (!full_since_ || taken_ != taken_then_) {
    full_since_ = now;
    taken_then_ = taken_;
  }
  return now - *full_since_ >= limits_.stall_limit;
}

WorkerLog::WorkerLog(WorkerLogOptions options, OutputQueue* output)
    : options_(std::move(options)), output_(output) {
  if (!options_.path.empty()) open_file();
}

WorkerLog::~WorkerLog() {
  if (fd_ >= 0) close(fd_);
}

void WorkerLog::open_file() {
  fd_ = open(options_.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  struct stat status = {};
  if (fd_ < 0 || fstat(fd_, &status) != 0) return fail("cannot open a worker's log file");
  file_bytes_ = static_cast<size_t>(status.st_size);
}

void WorkerLog::fail(const char* what) {
  log_warning(what, {{"path", options_.path}, {"error", std::strerror(errno)}});
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  options_.path.clear();
}

void WorkerLog::append(std::string_view chunk) {
  while (!chunk.empty()) {
    const size_t end = chunk.find('\n');
    partial_ += chunk.substr(0, end);
    chunk.remove_prefix(end == std::string_view::npos ? chunk.size() : end + 1);
    while (partial_.size() > options_.line_bytes_max) {
      const std::string_view head = utf8_head(partial_, options_.line_bytes_max);
      take_line(head);
      partial_.erase(0, head.size());
    }
    if (end != std::string_view::npos) {
      take_line(partial_);
      partial_.clear();
    }
  }
}

void WorkerLog::finish() {
  if (!partial_.empty()) take_line(std::exchange(partial_, {}));
}

void WorkerLog::take_line(std::string_view line) {
  std::string clean = clean_utf8(line);
  clean += '\n';
  tail_ = utf8_tail(tail_ + clean, options_.tail_bytes_max);
  write_file(clean);
  if (output_ != nullptr) output_->push(options_.prefix + clean);
}

void WorkerLog::write_file(std::string_view line) {
  if (options_.path.empty()) return;
  if (file_bytes_ > 0 && file_bytes_ + line.size() > options_.file_bytes_max) {
    close(std::exchange(fd_, -1));
    if (std::rename(options_.path.c_str(), (options_.path + ".1").c_str()) != 0) {
      return fail("cannot rotate a worker's log file");
    }
    open_file();
  }
  while (fd_ >= 0 && !line.empty()) {
    const ssize_t written = write(fd_, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail("cannot write a worker's log file");
    line.remove_prefix(static_cast<size_t>(written));
    file_bytes_ += static_cast<size_t>(written);
  }
}

}  // namespace lockstep::node
