#pragma once

#include <cstdint>

#include "agent/comm/data_type.h"

namespace lockstep {

// What a rank gives at an element, for checks: hashed, so that whatever comes of another rank,
// block or element, or is left as it was, shows. A whole number from 0 to 127, which every type
// holds exactly. bench/collectives/torch_gloo.py has the same.
int given(int rank, int64_t index);

// The same for what is reduced: 0 or 1, so that no sum is rounded, a 1 (or a 0) rarer the more it
// decides. The result of up to 128 ranks, of which `ones` give a 1; AVG is rounded down.
int given_to(ReduceOp op, int rank, int64_t index);
int result_of(ReduceOp op, int ones, int ranks);

// Neither of them: what memory holds before an operation writes its result there.
constexpr uint8_t kUnwritten = 0xa5;

}  // namespace lockstep
