#pragma once

#include <cstdint>

#include "agent/comm/communicator.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

// A place in a memfd.
struct SharedPlace {
  int fd = -1;  // not owned
  uint64_t offset = 0;
};

// Takes the pages of a part of a memfd now, which becomes no smaller; `by` says what for.
// kUnavailable if memory is short, with how much there is.
Status allocate_shared(const SharedPlace& place, uint64_t bytes, const char* by);

// Memory that the ranks of a group share, zeroed at first: a part of the memfd that their node's
// agent has made for the round and that they have inherited (WorkerConfig::shm_fd). Nothing of it
// is left behind when the processes end, however they end. Each rank maps it at an address of its
// own. After a barrier each rank reads what the others have written before it. Move-only.
class SharedSegment {
 public:
  // Without a descriptor (-1) only for a group of one rank. The offset is after what others have
  // there (comm::shm_bytes).
  using Place = SharedPlace;
  // All ranks of the group make this call, with the same size and offset, and have descriptors of
  // the same memfd. kInvalid where they cannot share memory: several hosts, or no memfd.
  // kUnavailable if memory is short.
  static Result<SharedSegment> map(comm::Communicator& group, const Place& place, uint64_t bytes);
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;
  ~SharedSegment();

  // Whole pages.
  const kernels::Workspace& memory() const { return memory_; }

 private:
  explicit SharedSegment(const kernels::Workspace& memory) : memory_(memory) {}

  kernels::Workspace memory_;
};

}  // namespace lockstep::parallel
