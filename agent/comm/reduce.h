#pragma once

#include <cstddef>

#include "agent/comm/data_type.h"

namespace lockstep::comm {

// Computes into[i] = a[i] (op) b[i] for `count` elements. kAvg only adds; divide_by_ranks() divides
// at the end. `into` may be `a` or `b`, and overlaps them in no other way. The order of the
// operands affects only the bits of a NaN. Pure, single-threaded.
struct ReduceArgs {
  void* into = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  size_t count = 0;
};
void reduce(DataType type, ReduceOp op, const ReduceArgs& args);

// Computes data[i] /= ranks.
void divide_by_ranks(DataType type, void* data, size_t count, int ranks);

}  // namespace lockstep::comm
