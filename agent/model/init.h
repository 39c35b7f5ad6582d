#pragma once

#include <cstdint>

#include "common/layout/parameters.h"

namespace lockstep {

// Fills the local part of one parameter with its initial values, as GPT-2 has them. Every element
// is a pure function of (seed, parameter, its place in the logical tensor), so that the values
// depend neither on the mesh nor on threads. `out` is host memory of entry.count floats; padding
// rows become zero. Source: Radford et al., 2019, section 2.3; scaling of residual projections as
// in its code.
void initialise_parameter(const Parameter& parameter, const ArenaEntry& entry,
                          const TensorShard& shard, int64_t layers, uint64_t seed, float* out);

// The whole arena of a rank, gaps zeroed.
void initialise_arena(const ModelConfig& config, const ParameterArena& arena,
                      const TensorShard& shard, uint64_t seed, float* out);

}  // namespace lockstep
