#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>

#include "common/base/result.h"

namespace lockstep::train {

// Runs one task at a time on a thread of its own. For one thread. The destructor asks the task to
// stop and waits for it.
class Background {
 public:
  using Task = std::function<Status(std::stop_token stop)>;
  // Starts the task, after wait() for the one before.
  void start(Task task);
  // Whether there is a task that was not waited for.
  bool has_task() const { return thread_.joinable(); }
  // Whether the task is still running.
  bool is_running() const { return has_task() && !is_done_.load(std::memory_order_acquire); }
  // Waits for the task and returns its result.
  Status wait();

 private:
  std::optional<Status> result_;
  std::atomic<bool> is_done_{false};
  std::jthread thread_;  // last: ends before the result goes
};

}  // namespace lockstep::train
