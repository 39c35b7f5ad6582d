#pragma once

#include <cstddef>
#include <cstdint>

#include "agent/comm/core.h"
#include "common/base/result.h"

namespace lockstep {

// The algorithms, for n ranks and S bytes: what every rank sends, and how many times in a row
// something has to travel from rank to rank (hops). Which one runs depends on n and S alone.
//
//   operation   | algorithm | chosen            | bytes a rank sends | hops
//   all_reduce  | direct    | (n-1)S <= 32 KiB  | (n-1)S             | 1
//   all_reduce  | ring      | else              | 2(n-1)/n S         | 2(n-1), pipelined
//   broadcast   | chain     | always            | S (the last none)  | n-1, pipelined
//   all_gather  | direct    | always            | (n-1)S             | 1
//   barrier     | direct    | always            | headers alone      | 1
//
// Ring: the buffer is cut into n segments; segment j travels j -> j+1 -> ... and is summed up on
// the way (scatter-reduce), then once more around (all-gather). Bytes are sent on as they come, so
// hops overlap. Sums are ((x_j + x_j+1) + x_j+2) + ..., in the direct form ((x_0 + x_1) + ...).
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
constexpr size_t kDirectBytesMax = size_t{32} << 10;

struct Segment {
  int64_t begin = 0;  // elements
  int64_t end = 0;
};
// The `index`-th of `parts` segments of `count` elements: contiguous, sizes differing by at most 1.
Segment ring_segment(int64_t count, int parts, int index);

// Carries the operation out on this thread. An error has broken the communicator.
Status run_collective(Core& core, Operation& operation);

}  // namespace lockstep
