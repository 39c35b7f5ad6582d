#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/parallel/offload/far_memory.h"
#include "kernels/ops/parameter_update.h"

namespace lockstep::parallel {

// A tensor of parameters whose states, or itself, are in far arrays, from element `first` of each.
struct FarTensor {
  kernels::UpdatedTensor tensor;
  int64_t first = 0;
};

// Tensors, or parts of them, that are updated at a time, and the range of the far arrays that they
// are in.
struct TensorPiece {
  FarRange range;
  std::vector<FarTensor> parts;
};

// Tensors that are at most this far apart share a piece, which then has the gap too: the padding
// between the tensors of an arena.
inline constexpr int64_t kPieceGapMax = 16;

// Cuts tensors, which ascend in `first` and do not overlap, into pieces of at most `room` floats
// each. All pieces together have each element once, in order, with the index that it has in the
// whole model. Pure.
std::vector<TensorPiece> cut_tensors(std::span<const FarTensor> tensors, int64_t room);

}  // namespace lockstep::parallel
