#pragma once

#include <cstdint>

#include "agent/comm/data_type.h"

namespace lockstep {

// Returns the value that a rank contributes at an index, for checks. Values are hashed, so that a
// check finds data of another rank, block or index, and data left unchanged. A whole number from 0
// to 127, which every type holds exactly. bench/collectives/torch_gloo.py has the same function.
int input_value(int rank, int64_t index);

// The same for reductions: 0 or 1, so that no sum is rounded. A 1 (or a 0) that decides the result
// on its own is rare. reduction_result() is for up to 128 ranks, of which `ones` contribute a 1; it
// rounds AVG down.
int reduction_input(ReduceOp op, int rank, int64_t index);
int reduction_result(ReduceOp op, int ones, int ranks);

// Never an input: fills output memory before an operation writes its result there.
constexpr uint8_t kUnwritten = 0xa5;

}  // namespace lockstep
