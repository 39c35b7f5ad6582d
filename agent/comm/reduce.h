#pragma once

#include <cstddef>
#include <cstdint>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep {

// into[i] = into[i] (op) from[i] for `count` elements of this type; kAvg adds, the division comes
// at the end (scale_average). The argument order is part of the promise: min and max aside, a + b
// and b + a are the same bits. Pure, single-threaded.
struct ReduceArgs {
  void* into = nullptr;
  const void* from = nullptr;
  size_t count = 0;
};
void reduce(DataType type, ReduceOp op, const ReduceArgs& args);

// data[i] /= ranks, floats only.
void scale_average(DataType type, void* data, size_t count, int ranks);

// kInvalid for an operation that isn't defined on the type (kAvg of integers).
Status check_reduction(DataType type, ReduceOp op);

}  // namespace lockstep
