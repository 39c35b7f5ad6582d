#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layout/pipeline_schedule.h"

namespace lockstep {

// Checks a schedule as data, independently of how it was generated. Returns every mistake as a
// sentence that names the stage and the position in its list; empty if the schedule trains the
// shape's model:
// - each micro-batch goes forward and backward through each chunk exactly once, with what it reads
//   at hand: data on the first and the last part, the activation or gradient of the neighbour;
// - micro-batches are taken in ascending order, only where they are read, and the backwards of a
//   chunk ascend too, so that gradients are summed in the same order whatever the schedule;
// - whatever a pass produces for another stage is sent exactly once, after the pass;
// - activations that a stage sends to another one are received in the same order, and gradients
// too;
// - gradients of parameters that are computed apart follow the backward of their micro-batch, and
//   ascend, too;
// - the backward that completes the gradients of a chunk is the last one, and the reductions'
//   end and the update follow, once;
// - no stage waits forever (schedule_play.h), given that activations and gradients have channels of
//   their own;
// - no stage keeps more micro-batches in flight than in_flight_bound() allows.
std::vector<std::string> schedule_problems(const PipelineShape& shape,
                                           const PipelineSchedule& schedule);

// Returns the most micro-batches (each chunk's count) that a schedule of that kind keeps between
// forward and backward on a stage.
int64_t in_flight_bound(const PipelineShape& shape, int64_t stage);

}  // namespace lockstep
