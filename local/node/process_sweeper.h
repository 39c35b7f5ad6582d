#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::local {

// The entry of a container's environment by which its descendants are found, whatever groups,
// sessions and parents they have chosen. Its value is unique for each start of a container.
inline constexpr char kContainerVariable[] = "LOCKSTEP_CONTAINER";

// Processes whose environment says that they belong to this start of a container.
std::vector<pid_t> processes_of_container(const std::string& container);

// Takes away what containers leave behind: SIGKILL to every process that belongs to one, until
// there are none. On a thread of its own, one look at /proc for all that wait. Thread-safe.
class ProcessSweeper {
 public:
  // Called once, on the sweeper's thread, without a lock; must not block.
  using OnDone = std::function<void()>;

  ProcessSweeper();
  // Finishes what was asked for.
  ~ProcessSweeper();
  ProcessSweeper(const ProcessSweeper&) = delete;
  ProcessSweeper& operator=(const ProcessSweeper&) = delete;

  void sweep(const std::string& container, OnDone on_done);

 private:
  struct Task {
    OnDone on_done;
    int looks = 0;
  };
  void loop();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, Task> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::local
