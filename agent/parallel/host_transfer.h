#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

// Consecutive values in memory of a device.
struct ValueRun {
  float* data = nullptr;
  int64_t count = 0;
};

// Size of each of the two buffers. A GPU copies 8 MiB in about 0.2 ms, so the fixed cost of a copy
// is small compared with its bytes, and the host needs far longer to check and store them.
inline constexpr size_t kTransferPieceBytes = size_t{8} << 20;

// Lets the host read and write values of a device piece by piece, through two page-locked buffers:
// the device copies one while the host works on the other. However much goes through, that is all
// of the host's memory that is taken. On the CPU there is no buffer and no copy: the values are
// visited where they are, each run as a whole. Move-only; one thread.
class HostTransfer {
 public:
  // The CPU's.
  HostTransfer() = default;
  // Page-locked buffers of the same size; empty on the CPU.
  using Buffers = std::array<kernels::Workspace, 2>;
  // The stream, on which copies are issued, and the buffers outlive it.
  HostTransfer(kernels::Stream& stream, const Buffers& buffers);
  HostTransfer(HostTransfer&&) = default;
  ~HostTransfer();

  // Calls `visit` with the values of all runs in order, some at a time; they are gone when it
  // returns. Its error ends the transfer. Others: the device's, kUnavailable where memory is short.
  using Visit = std::function<Status(std::span<const float> values)>;
  Status read(std::span<const ValueRun> runs, const Visit& visit);

  // Calls `fill` for all values of all runs in order, some at a time: those of runs[run] from its
  // element `first` on. They are on the device when it returns; after an error some of them are.
  using Fill = std::function<Status(size_t run, int64_t first, std::span<float> to)>;
  Status write(std::span<const ValueRun> runs, const Fill& fill);

 private:
  struct Slot {
    kernels::Workspace buffer;
    kernels::Event copied;  // after the last copy from or to the buffer
  };
  class Pieces;
  bool is_cpu() const {
    return stream_ == nullptr || stream_->device().type == kernels::DeviceType::kCpu;
  }
  Status make_events();
  // Issues the copies of the next piece to the slot's buffer, if there is one; its count.
  Result<int64_t> fetch(Pieces& pieces, Slot& slot);

  kernels::Stream* stream_ = nullptr;
  std::array<Slot, 2> slots_;
  bool has_events_ = false;
};

}  // namespace lockstep::parallel
