#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// Lengths of moves, in bytes, both ends included; none where min > max.
struct LoanRange {
  size_t min = 1;
  size_t max = 0;
  constexpr bool holds(size_t bytes) const { return bytes >= min && bytes <= max; }
};

// What bounds that which travels between two ranks; the same on every rank of a world. Tests lower
// it, so that small operations reach it.
struct CommLimits {
  // How far the sender of one lane (move_plan.h) may be ahead of what its receiver has taken. More
  // is only sent when the receiver, which is in the operation then, allows it (frame.h): so an
  // operation that is not called on the other side yet, or that can't go on there, holds up no
  // other one for ever, and what a receiver has to put aside for it is bounded. A lane that is no
  // longer than this needs no word. A multiple of 64, no less than a frame and than 128.
  size_t window_bytes = size_t{8} << 20;
  // Of a frame's payload; a larger one is no frame of ours. A multiple of 64, below 2^32.
  size_t frame_bytes_max = size_t{1} << 20;
  // So many windows of as many operations one port keeps in memory where they can't be taken yet.
  size_t aside_windows_max = 32;
  // From here on a copy pushes out of the caches more than it leaves there for whoever reads it
  // next, and goes past them.
  size_t past_cache_bytes = size_t{8} << 20;
  // Between ranks that share memory, a move of this length is lent (loans.h) by operations that do
  // not reduce it: the receiver copies it once. Of longer ones we go past the caches, which the
  // kernel does not. Measured (bench/results, collectives_one_copy).
  LoanRange loans{.min = size_t{64} << 10, .max = size_t{8} << 20};
  // The same of operations that go one way, of a root and messages: with a core for each rank, the
  // two copies through memory run at the same time, and nothing is lent. No less than the link
  // holds, so that what is shorter goes ahead of the receiver's call.
  LoanRange one_way_loans;
  LoanRange one_way_loans_sharing_cores{.min = size_t{8} << 20, .max = size_t{16} << 20};
  // Nothing is lent on a host where a copy from process to process takes more than so many times
  // what one within a process does, as its first rank finds when the world forms. 0: nothing is
  // lent; infinite: that is not tried.
  double loan_cost_max = 2.5;
  // Nor on one with more ranks: not measured, and all who read from a process take turns at its
  // page tables.
  int loan_ranks_max = 4;
};

// What a frame that is kept costs beside its payload: its header, its place in the rows, its share
// of the allocator's.
constexpr size_t kAsideFrameBytes = 512;

// The windows, and as many frames as they have where a frame ends with each piece of 64 KiB.
constexpr size_t aside_bytes_max(const CommLimits& limits) {
  const size_t frame = std::min(limits.frame_bytes_max, size_t{64} << 10);
  const size_t frames = (limits.window_bytes + frame - 1) / frame;
  return limits.aside_windows_max * (limits.window_bytes + frames * kAsideFrameBytes);
}

constexpr bool are_valid(const CommLimits& limits) {
  return limits.frame_bytes_max >= 64 && limits.frame_bytes_max % 64 == 0 &&
         limits.frame_bytes_max <= UINT32_MAX && limits.window_bytes >= limits.frame_bytes_max &&
         limits.window_bytes >= 128 && limits.window_bytes % 64 == 0 &&
         limits.window_bytes <= UINT32_MAX && limits.aside_windows_max > 0 &&
         limits.loan_cost_max >= 0;
}

}  // namespace lockstep
