#pragma once

#include <string>
#include <vector>

#include "common/layout/pipeline_schedule.h"

namespace lockstep {

// Whether an action concerns a micro-batch, sends a message, receives one.
bool is_of_micro_batch(ActionKind kind);
bool is_send(ActionKind kind);
bool is_receive(ActionKind kind);
// Returns for example "forward 3 of chunk 0".
std::string describe(const Action& action);

// Plays all stages: a receive waits until its message was sent, a send until its channel has room
// (kChannelSlots at each end), and everything else happens at once. Adds a sentence for each
// stage that waits forever, and for messages in another order than the receives.
void play(const PipelineShape& shape, const PipelineSchedule& schedule,
          std::vector<std::string>& problems);

}  // namespace lockstep
