#pragma once

#include <cstdint>

#include "agent/optim/optimizer.h"
#include "common/layout/parameters.h"
#include "common/layout/sharding.h"

namespace lockstep::parallel {

constexpr uint64_t float_bytes(int64_t count) {
  return static_cast<uint64_t>(count) * sizeof(float);
}

// Where the optimizer's states of data-parallel ranks are.
enum class StateHolders : uint8_t {
  kEveryRank,  // each has all of them
  kFirstRank,  // rank 0 of the group alone has them: it saves and loads all, the others none
  kShared,     // once, in memory that all ranks read and write, or on servers: what one has loaded
               // all have
};
StateHolders state_holders(Exchange exchange);

// A rank's memory for an exchange, in addition to an arena of parameters and one of gradients.
struct ExchangeMemory {
  uint64_t state_bytes = 0;    // of the device: the optimizer's states
  uint64_t staging_bytes = 0;  // of the device
  uint64_t shared_bytes = 0;   // of memory that the group shares, once for all of them
};
struct ExchangeShape {
  Exchange exchange = Exchange::kAllReduce;
  ParameterArena arena;
  int64_t bucket_bytes = 0;
  optim::OptimizerOptions optimizer;
  int ranks = 1;                   // of the group
  int rank = 0;                    // in the group
  bool is_stream_ordered = false;  // DeviceTraits of the group
};
// Exact, and pure.
ExchangeMemory exchange_memory(const ExchangeShape& shape);

// Returns what the ranks share with Exchange::kHost: the parameters, the optimizer's states and
// the gradients of each rank.
uint64_t host_segment_bytes(const ParameterArena& arena, const optim::OptimizerOptions& optimizer,
                            int ranks);

}  // namespace lockstep::parallel
