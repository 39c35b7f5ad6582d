#pragma once

#include <cstdint>
#include <span>

#include "common/layout/parameters.h"

namespace lockstep::model {

// Describes the initial values of one parameter's local part.
struct InitialValues {
  const Parameter& parameter;
  const ArenaEntry& entry;
  TensorShard shard;
  int64_t layers = 1;  // residual_layers() of the model
  uint64_t seed = 0;
};
// Fills `out`, in host memory, with the local part's elements from `first` on, initialised as its
// Init says. Every element is a pure function of (seed, parameter, position in the logical tensor),
// so the values depend neither on the mesh nor on threads. Padding rows become zero. Source of the
// normal ones: Radford et al., 2019, section 2.3; scaling of residual projections as in its code.
void initialise(const InitialValues& values, int64_t first, std::span<float> out);

}  // namespace lockstep::model
