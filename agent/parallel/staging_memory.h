#pragma once

#include <cstdint>

#include "agent/parallel/compose_options.h"

namespace lockstep::parallel {

// Returns the most page-locked memory that a rank's collectives of GPU memory take where they go
// through host memory (comm::StagingBackend). Pure.
//
// An operation in several parts takes two inputs and two outputs of a part, each in a block whose
// size is a power of two. Each group keeps its blocks. It adds one of a size only while all of at
// least that size are in use, so it has at most as many of a size as operations that are under way
// together take of that size or smaller ones. These are under way together:
//
//   sharding   | reduce-scatters, or all-reduces over replicas        | all-gathers
//   none       | all-reduces of every bucket                          | -
//   optimizer  | of every unit                                        | of every unit
//   gradients  | of a unit in each of the places of GradientPlaces    | of every unit
//   parameters | likewise                                             | of the units of one block
//
// At other times there is one broadcast of the parameters, or a sum of squares. Ranks that share
// tensors have one operation under way, and stages kChannelSlots messages of each
// channel.
uint64_t staging_bytes_max(const ComposeOptions& options);

}  // namespace lockstep::parallel
