#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::comm {

// Longest reason, in bytes; a longer one is cut between two characters.
constexpr size_t kFaultReasonMax = 455;

// Why a communicator broke; the same on all ranks. `reason` reads well after "[comm] all_reduce
// #17: " and names ranks of the world. `suspect` is one of them (-1: nobody).
struct Fault {
  Code code = Code::kUnavailable;
  std::string reason;
  int suspect = -1;
};

// Returns the error of a call that the fault ends: `[comm] <during><reason>`. It blames a peer.
Error error_from(const Fault& fault, std::string_view during = "");

// Holds the first fault. Thread-safe.
class FaultBox {
 public:
  // Returns false if it already holds a fault. Keeps as much of the reason as a rank can send to
  // the others.
  bool raise(const Fault& fault);
  bool raised() const { return raised_.load(std::memory_order_acquire); }
  // Returns the fault, once raised.
  Fault get() const;
  // Waits for a fault; returns whether there is one.
  bool wait_for(Duration timeout) const;

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Fault fault_;
};

}  // namespace lockstep::comm
