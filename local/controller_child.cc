#include "local/controller_child.h"

#include <signal.h>

#include <algorithm>

#include "common/base/log.h"

namespace lockstep::local {
namespace {

constexpr auto kStopTime = std::chrono::seconds(5);

}  // namespace

ControllerChild::ControllerChild(ProcessHost& host, ControllerChildOptions options)
    : host_(host), options_(std::move(options)) {
  thread_ = std::thread([this] { loop(); });
}

ControllerChild::~ControllerChild() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ControllerChild::loop() {
  Duration pause = options_.backoff_first;
  while (true) {
    auto began = std::chrono::steady_clock::now();
    if (!run_once()) return;
    if (std::chrono::steady_clock::now() - began >= options_.healthy_after) {
      pause = options_.backoff_first;
      consecutive_exits_ = 0;
    }
    ++exits_;
    ++consecutive_exits_;
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, pause, [this] { return stopping_; })) return;
    pause = std::min(pause * 2, options_.backoff_max);
  }
}

bool ControllerChild::run_once() {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return false;
    ended_ = false;
  }
  Result<pid_t> pid = host_.spawn(options_.spec, [this](ExitStatus) {
    // Notified under the lock: the object may be destroyed as soon as the lock is released.
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  });
  if (!pid.ok()) {
    log_error("can't start the controller", {{"error", pid.error().message}});
    return true;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || ended_; });
  bool by_itself = ended_;
  if (!ended_) {
    kill(*pid, SIGTERM);
    if (!changed_.wait_for(lock, kStopTime, [this] { return ended_; })) kill(-*pid, SIGKILL);
    changed_.wait(lock, [this] { return ended_; });
  }
  return by_itself;
}

}  // namespace lockstep::local
