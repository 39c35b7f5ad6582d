#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "common/base/clock.h"

namespace lockstep::kube {

// Calls that other threads post to the loop's thread.
class Mailbox {
 public:
  // Thread-safe. Never blocks for long.
  void post(std::function<void()> call);
  // Loop's thread: runs all calls that were posted before it began; returns how many.
  size_t run();
  // Loop's thread: blocks until something is posted, or until `until` (nullopt: no limit).
  void wait(std::optional<TimePoint> until);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
};

}  // namespace lockstep::kube
