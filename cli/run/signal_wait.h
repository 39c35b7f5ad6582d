#pragma once

#include "common/base/result.h"

namespace lockstep {

// What a command in the foreground waits for: SIGINT, SIGTERM and SIGHUP, which no longer end the
// process from take() on, and what other threads tell by wake(). One thread takes, waits and asks.
class SignalWait {
 public:
  SignalWait() = default;
  ~SignalWait();
  SignalWait(const SignalWait&) = delete;
  SignalWait& operator=(const SignalWait&) = delete;

  // Before there are other threads: they inherit that the signals are left to this one.
  Status take();
  // Until a signal, a wake-up or so many milliseconds.
  void wait(int milliseconds);
  // Ends a wait(), the next if there is none. From any thread, after take().
  void wake();
  // Signals that wait() has seen so far.
  int count() const { return count_; }

 private:
  int signal_fd_ = -1;
  int wake_fd_ = -1;
  int count_ = 0;
};

}  // namespace lockstep
