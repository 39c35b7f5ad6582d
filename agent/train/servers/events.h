#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "common/base/clock.h"

namespace lockstep::train {

// Lets a thread sleep until something happens that other threads tell of. Thread-safe.
class Events {
 public:
  uint64_t count() const;
  // Something has happened. Does not block.
  void notify();
  // Blocks until more has happened than `seen`; without `at_most`, for as long as it takes. Returns
  // whether it has.
  void wait(uint64_t seen);
  bool wait(uint64_t seen, Duration at_most);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t count_ = 0;
};

}  // namespace lockstep::train
