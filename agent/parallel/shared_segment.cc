#include "agent/parallel/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "kernels/device/device.h"
#include "kernels/device/device_errors.h"

namespace lockstep::parallel {
namespace {

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

Status check_group(const comm::Communicator& group, const SharedSegment::Place& place) {
  if (group.hosts().hosts() > 1) {
    return invalid("[shared memory] expected all ranks on one node, got " +
                       std::to_string(group.size()) + " ranks on " +
                       std::to_string(group.hosts().hosts()) + " nodes",
                   Blame::kConfig);
  }
  if (group.size() > 1 && place.fd < 0) {
    return invalid("[shared memory] expected a descriptor of memory that the " +
                   std::to_string(group.size()) + " ranks share, got none");
  }
  return {};
}

// Without this check, too large a request would not fail: the system would kill processes.
Status check_free_memory(uint64_t bytes, const char* by) {
  TRY_ASSIGN(const kernels::DeviceMemory memory, kernels::memory_of({}));
  if (memory.total_bytes == 0 || memory.free_bytes >= bytes) return {};
  return kernels::out_of_memory({.device = {},
                                 .bytes = bytes,
                                 .by = by,
                                 .free_bytes = memory.free_bytes,
                                 .total_bytes = memory.total_bytes});
}

}  // namespace

Status allocate_shared(const SharedPlace& place, uint64_t bytes, const char* by) {
  TRY(check_free_memory(bytes, by));
  int result = 0;
  do {
    result = ::fallocate(place.fd, 0, static_cast<off_t>(place.offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return {};
  return errno_error("[shared memory] allocating " + std::to_string(bytes) + " bytes", errno);
}

Result<SharedSegment> SharedSegment::map(comm::Communicator& group, const Place& place,
                                         uint64_t bytes) {
  TRY(check_group(group, place));
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t begin = round_up(place.offset, page);
  bytes = round_up(bytes, page);
  const bool is_alone = place.fd < 0;
  if (!is_alone && group.rank() == 0) {
    TRY(allocate_shared({place.fd, begin}, bytes, "memory that the ranks share"));
  }
  TRY(group.barrier());
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (is_alone ? MAP_ANONYMOUS : 0),
             place.fd, is_alone ? 0 : static_cast<off_t>(begin));
  if (data == MAP_FAILED) {
    return errno_error("[shared memory] mapping " + std::to_string(bytes) + " bytes", errno);
  }
  return SharedSegment({data, bytes});
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : memory_(std::exchange(other.memory_, {})) {}

SharedSegment::~SharedSegment() {
  if (memory_.data != nullptr) ::munmap(memory_.data, memory_.bytes);
}

}  // namespace lockstep::parallel
