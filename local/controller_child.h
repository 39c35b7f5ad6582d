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
  Duration healthy_after = std::chrono::seconds(20);  // then the back-off starts over
};

// Runs lockstep-controller as a child process and restarts it, with back-off, whenever it ends.
class ControllerChild {
 public:
  // `host` outlives the object.
  ControllerChild(ProcessHost& host, ControllerChildOptions options);
  // Sends SIGTERM, then SIGKILL if the child has not ended after a few seconds.
  ~ControllerChild();

  // How often the child ended on its own: in total, and in a row without having been healthy.
  int64_t exits() const { return exits_; }
  int64_t consecutive_exits() const { return consecutive_exits_; }

 private:
  void loop();
  // Returns false if the child was stopped on request.
  bool run_once();

  ProcessHost& host_;
  const ControllerChildOptions options_;
  std::atomic<int64_t> exits_ = 0;
  std::atomic<int64_t> consecutive_exits_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace lockstep::local
