#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::comm {

// A range of move lengths in bytes, both ends included; empty if min > max.
struct LoanRange {
  size_t min = 1;
  size_t max = 0;
  constexpr bool holds(size_t bytes) const { return bytes >= min && bytes <= max; }
};

// Limits on the traffic between two ranks; the same on every rank of a world. Tests lower them, so
// that small operations reach them.
struct CommLimits {
  // How far the sender of one lane (move_plan.h) may run ahead of its receiver. It sends more only
  // when the receiver, which has entered the operation by then, allows it (frame.h). This has two
  // effects:
  // - An operation that the other side has not called yet, or cannot continue, never blocks others
  //   for good.
  // - The memory in which a receiver buffers it is bounded.
  // A lane that is no longer than this needs no credit. A multiple of 64, at least a frame and at
  // least 128.
  size_t window_bytes = size_t{8} << 20;
  // Largest payload of a frame; a longer one is corrupt. A multiple of 64, below 2^32.
  size_t frame_bytes_max = size_t{1} << 20;
  // A port keeps at most this many windows, of as many operations, that nobody can take yet.
  size_t buffered_windows_max = 32;
  // From this size on, a copy would evict more from the caches than it leaves there for the next
  // reader, so it bypasses them.
  size_t past_cache_bytes = size_t{8} << 20;
  // Between ranks that share memory, operations that do not reduce lend moves of this length
  // (loans.h): the receiver copies them once. For longer moves our copy bypasses the caches, and
  // the kernel's does not. Measured (bench/results, collectives_one_copy).
  LoanRange loans{.min = size_t{64} << 10, .max = size_t{8} << 20};
  // The same for one-way operations (those with a root, and messages). With a core for each rank,
  // the two copies through memory run at the same time, so nothing is lent. The minimum is at least
  // what the link holds, so that shorter moves go ahead of the receiver's call.
  LoanRange one_way_loans;
  LoanRange one_way_loans_sharing_cores{.min = size_t{8} << 20, .max = size_t{16} << 20};
  // Nothing is lent on a host where a copy from process to process takes more than this many times
  // as long as one within a process. The host's first rank measures that when the world forms. 0:
  // nothing is lent; infinite: not measured.
  double loan_cost_max = 2.5;
  // Nothing is lent on a host with more ranks: this is not measured, and all readers of a process
  // contend for its page tables.
  int loan_ranks_max = 4;
};

// Cost of a buffered frame in addition to its payload: header, stream entry and allocator overhead.
constexpr size_t kBufferedFrameOverheadBytes = 512;

// Returns the most memory that a port keeps: the windows, plus the cost of their frames if each
// frame ends after 64 KiB (or frame_bytes_max, if that is less).
constexpr size_t buffered_bytes_max(const CommLimits& limits) {
  const size_t frame = std::min(limits.frame_bytes_max, size_t{64} << 10);
  const size_t frames = (limits.window_bytes + frame - 1) / frame;
  return limits.buffered_windows_max * (limits.window_bytes + frames * kBufferedFrameOverheadBytes);
}

constexpr bool are_valid(const CommLimits& limits) {
  return limits.frame_bytes_max >= 64 && limits.frame_bytes_max % 64 == 0 &&
         limits.frame_bytes_max <= UINT32_MAX && limits.window_bytes >= limits.frame_bytes_max &&
         limits.window_bytes >= 128 && limits.window_bytes % 64 == 0 &&
         limits.window_bytes <= UINT32_MAX && limits.buffered_windows_max > 0 &&
         limits.loan_cost_max >= 0;
}

}  // namespace lockstep::comm
