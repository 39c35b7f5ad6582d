#include "controller/kube/mailbox.h"

namespace lockstep::kube {

void Mailbox::post(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  changed_.notify_one();
}

size_t Mailbox::run() {
  std::deque<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const std::function<void()>& call : calls) call();
  return calls.size();
}

void Mailbox::wait(std::optional<TimePoint> until) {
  std::unique_lock lock(mutex_);
  const auto is_posted = [this] { return !calls_.empty(); };
  if (until) {
    changed_.wait_until(lock, *until, is_posted);
  } else {
    changed_.wait(lock, is_posted);
  }
}

}  // namespace lockstep::kube
