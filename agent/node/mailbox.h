#pragma once

#include <functional>
#include <mutex>
#include <vector>

namespace lockstep {

// Calls handed to one thread by others: post() from anywhere, run_all() where they shall run.
// fd() polls readable while calls wait.
class Mailbox {
 public:
  Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox();

  void post(std::function<void()> call);
  void run_all();
  int fd() const { return fd_; }

 private:
  int fd_;
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;
};

}  // namespace lockstep
