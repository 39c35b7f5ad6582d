#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/pipeline_schedule.h"

namespace lockstep {

// Seconds of the passes of one micro-batch through a whole stage. A stage with several chunks
// spends as much on each of them.
struct PassSeconds {
  double forward = 1;
  double backward = 2;  // with the gradients of activations and of parameters
  double weights = 1;   // of `backward`: for the gradients of parameters, where they are apart
};

struct ScheduleTime {
  double step_seconds = 0;           // until the last stage is done
  std::vector<double> idle_seconds;  // by stage, within the step
  double idle_ratio = 0;             // of all stages' time: the bubble
};

// Computes how long a schedule takes if stages are equal, messages take no time, and reductions and
// updates neither. Expects a schedule without problems (schedule_problems()). Pure.
ScheduleTime schedule_time(const PipelineShape& shape, const PipelineSchedule& schedule,
                           const PassSeconds& seconds);

}  // namespace lockstep
