#pragma once

#include <cstddef>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep {

// The memory of a call, as communicator.h's table says: where this rank takes from and gives to.
struct CallMemory {
  const std::byte* input = nullptr;
  size_t input_bytes = 0;
  std::byte* output = nullptr;
  size_t output_bytes = 0;
  bool in_place = false;  // both are the same
};

// kInvalid for a call that can't be carried out by `rank` of `size`, whatever the others do: a rank
// that is not there, counts and memory that don't fit. Pure.
Result<CallMemory> check_call(const Call& call, int rank, int size);

}  // namespace lockstep
