#pragma once

#include <cstdint>
#include <span>

#include "common/layout/parameters.h"

namespace lockstep {

// The initial values of the local part of one parameter.
struct InitialValues {
  const Parameter& parameter;
  const ArenaEntry& entry;
  TensorShard shard;
  int64_t layers = 1;
  uint64_t seed = 0;
};
// Fills `out`, host memory, with the elements from `first` on of the entry.count, as GPT-2 has
// them. Every element is a pure function of (seed, parameter, its place in the logical tensor), so
// that the values depend neither on the mesh nor on threads; padding rows become zero. Source:
// Radford et al., 2019, section 2.3; scaling of residual projections as in its code.
void initialise(const InitialValues& values, int64_t first, std::span<float> out);

// The whole arena of a rank, in host memory, gaps zeroed.
void initialise_arena(const ModelConfig& config, const ParameterArena& arena,
                      const TensorShard& shard, uint64_t seed, float* out);

}  // namespace lockstep
