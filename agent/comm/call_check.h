#pragma once

#include <cstddef>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep::comm {

// The memory of a call, by the table in communicator.h: where this rank reads its input and writes
// its output.
struct CallMemory {
  const std::byte* input = nullptr;
  size_t input_bytes = 0;
  std::byte* output = nullptr;
  size_t output_bytes = 0;
  bool in_place = false;  // input and output overlap
};

// Checks a call of `rank` of `size` without asking the other ranks. kInvalid for a rank that does
// not exist, or for counts or memory that do not fit. Pure.
Result<CallMemory> check_call(const Call& call, int rank, int size);

}  // namespace lockstep::comm
