#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::local {

// Environment variable that marks a container's descendants, whatever groups, sessions and parents
// they have. Its value is unique for each start of a container.
inline constexpr char kContainerVariable[] = "LOCKSTEP_CONTAINER";

// Cleans up after containers: sends SIGKILL to every process that belongs to one until none are
// left. A dedicated thread scans /proc once for all waiting containers. Thread-safe.
class ProcessSweeper {
 public:
  // Called once, on the sweeper's thread, without a lock; must not block.
  using OnDone = std::function<void()>;

  ProcessSweeper();
  // Finishes the requested sweeps.
  ~ProcessSweeper();
  ProcessSweeper(const ProcessSweeper&) = delete;
  ProcessSweeper& operator=(const ProcessSweeper&) = delete;

  void sweep(const std::string& container, OnDone on_done);

 private:
  struct Task {
    OnDone on_done;
    int looks = 0;
    int unknown_looks = 0;
  };
  void loop();

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::map<std::string, Task> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::local
