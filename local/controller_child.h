#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "local/node/process_host.h"

namespace lockstep::local {

struct ControllerChildOptions {
  SpawnSpec spec;
  Duration backoff_first = std::chrono::milliseconds(200);
  Duration backoff_max = std::chrono::seconds(5);
  Duration healthy_after = std::chrono::seconds(20);  // then the back-off begins anew
};

// lockstep-controller as a child that is started again whenever it ends, each time later.
class ControllerChild {
 public:
  // `host` outlives the object.
  ControllerChild(ProcessHost& host, ControllerChildOptions options);
  // SIGTERM, and SIGKILL if it takes longer than a few seconds.
  ~ControllerChild();

  // How often it has ended by itself, and how often in a row without having been healthy.
  int64_t ends() const { return ends_; }
  int64_t ends_in_a_row() const { return ends_in_a_row_; }
  // 0 while it does not run.
  pid_t pid() const { return pid_; }

 private:
  void loop();
  // False: to be stopped.
  bool run_once();

  ProcessHost& host_;
  const ControllerChildOptions options_;
  std::atomic<int64_t> ends_ = 0;
  std::atomic<int64_t> ends_in_a_row_ = 0;
  std::atomic<pid_t> pid_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace lockstep::local
