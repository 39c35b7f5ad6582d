#include "agent/train/servers/events.h"

namespace lockstep::train {

uint64_t Events::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void Events::notify() {
  const std::lock_guard lock(mutex_);
  ++count_;
  changed_.notify_all();
}

void Events::wait(uint64_t seen) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return count_ > seen; });
}

bool Events::wait(uint64_t seen, Duration at_most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, at_most, [&] { return count_ > seen; });
}

}  // namespace lockstep::train
