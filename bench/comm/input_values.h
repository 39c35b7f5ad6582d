#pragma once

#include <cstdint>

#include "agent/comm/data_type.h"

namespace lockstep::bench {

// Returns the input of a rank at an element, for checks. It is a hash, so that data from another
// rank, block or element, or memory that was not written, shows as wrong. It is a whole number from
// 0 to 127, which every type holds exactly. bench/collectives/torch_gloo.py computes the same
// values.
int input_value(int rank, int64_t index);

// The same for reductions: 0 or 1, so that no sum is rounded. The value that alone decides the
// result is the rarer one: 0 for PROD and MIN, 1 for MAX and LOR.
int reduction_input(comm::ReduceOp op, int rank, int64_t index);
// Returns the result of `ranks` ranks, at most 128, of which `ones` contribute a 1. AVG is rounded
// down.
int reduction_result(comm::ReduceOp op, int ones, int ranks);

// Memory holds this byte before an operation writes its result. It occurs in no input or result.
constexpr uint8_t kUnwritten = 0xa5;

}  // namespace lockstep::bench
