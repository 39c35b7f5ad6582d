#pragma once

#include <cstdint>

#include "agent/comm/communicator.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"

namespace lockstep::parallel {

// A rank's part of what a step or an evaluation adds up.
struct RankTotals {
  double loss_sum = 0;  // over its tokens, in nats
  int64_t tokens = 0;   // that are counted
  int64_t stop = 0;     // 1: the rank was asked to stop
};

struct WorldTotals {
  double loss = 0;    // mean over all tokens; 0 if there are none
  bool stop = false;  // some rank was asked to stop
};

// Adds up over all ranks of the mesh, in the order of ranks, so that every rank gets the same bits.
// Each token counts once: only the last stage of a pipeline has losses, and the ranks along the
// tensor axis repeat them. Errors are the communicator's.
Result<WorldTotals> add_up(comm::Communicator& world, const Mesh& mesh, const RankTotals& mine);

}  // namespace lockstep::parallel
