#pragma once

#include "common/base/result.h"

namespace lockstep::cli {

// Lets a foreground command wait for signals and for other threads. From block_signals() on,
// SIGINT, SIGTERM and SIGHUP no longer end the process. One thread calls block_signals(), wait()
// and count().
class SignalWait {
 public:
  SignalWait() = default;
  ~SignalWait();
  SignalWait(const SignalWait&) = delete;
  SignalWait& operator=(const SignalWait&) = delete;

  // Blocks the signals. Call it before starting other threads, so that they inherit the signal
  // mask.
  Status block_signals();
  // Waits for a signal, a wake-up or the timeout.
  void wait(int milliseconds);
  // Ends the current wait(), or the next one if none is running. Any thread, after block_signals().
  void wake();
  // Number of signals that wait() has seen so far.
  int count() const { return count_; }

 private:
  int signal_fd_ = -1;
  int wake_fd_ = -1;
  int count_ = 0;
};

}  // namespace lockstep::cli
