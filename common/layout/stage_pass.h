#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/pipeline_schedule.h"

namespace lockstep {

// A forward or backward of one chunk, or the part of a backward that is left to compute apart. The
// members mean what they mean in an Action.
struct Pass {
  ActionKind kind = ActionKind::kForward;
  int64_t micro_batch = 0;
  int64_t chunk = 0;
  int64_t step = -1;
  int64_t version = -1;
  bool completes_gradients = false;
};

// Appends a pass on a stage, after the data and the message that it reads and before the message
// that it makes. Neighbours run the passes of all parts in the same order, so what a pass needs is
// the next message.
void add_pass(const PipelineShape& shape, int64_t stage, const Pass& pass,
              std::vector<Action>& actions);

}  // namespace lockstep
