#pragma once

#include <functional>
#include <mutex>
#include <vector>

namespace lockstep::node {

// A queue of calls for one thread: post() from any thread, run_all() on the receiving thread. fd()
// polls readable while calls are queued.
class CallQueue {
 public:
  CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;
  ~CallQueue();

  void post(std::function<void()> call);
  void run_all();
  int fd() const { return fd_; }

 private:
  int fd_;
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;
};

}  // namespace lockstep::node
