#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "common/base/clock.h"

namespace lockstep {

// Calls that other threads leave for the loop's thread.
class Mailbox {
 public:
  // From any thread. Never blocks for long.
  void post(std::function<void()> call);
  // Loop's thread: makes all the calls that were there when it began; returns how many.
  size_t run();
  // Loop's thread: until something was posted, or `until` (nullopt: no limit) has come.
  void wait(std::optional<TimePoint> until);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
};

}  // namespace lockstep
