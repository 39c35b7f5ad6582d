#pragma once

#include <cstdint>

#include "agent/parallel/compose_options.h"
#include "common/layout/shard_layout.h"

namespace lockstep::parallel {

// How the options divide a rank's arena.
ShardLayout::Cut shard_cut(const ComposeOptions& options);
ShardLayout shard_layout(const ComposeOptions& options);

// The values that a rank keeps on its device; the sums that TARGETS and docs call the formula of a
// mode. With N ranks, P parameters (a shard has P/N), and G the largest two neighbouring blocks:
//
//   sharding   | parameters | gradients | each state | gathered parameters, gradients
//   none       | P          | P         | P          | 0, 0
//   optimizer  | P          | P         | P/N        | 0, 0
//   gradients  | P          | P/N       | P/N        | 0, two units and a tied embedding
//   parameters | P/N        | P/N       | P/N        | G (or P), two units and a tied embedding
struct ShardMemory {
  int64_t parameters = 0;       // fp32
  int64_t copies = 0;           // bf16, in the layout of the parameters
  int64_t gradients = 0;        // fp32
  int64_t state = 0;            // fp32, of each of the optimizer's states
  int64_t gathered = 0;         // fp32: parameters of blocks that compute
  int64_t gathered_copies = 0;  // bf16, likewise
  int64_t unit_gradients = 0;   // fp32: of units that compute
  int64_t travelling = 0;       // bf16: gradients between ranks
  int64_t far_states = 0;       // fp32, of each state, outside of the device
  int64_t far_parameters = 0;   // fp32, outside of the device
};
// Exact, and pure.
ShardMemory shard_memory(const ComposeOptions& options);

}  // namespace lockstep::parallel
