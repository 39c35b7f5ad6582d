#pragma once

#include <cstdint>
#include <string>

#include "agent/comm/communicator.h"
#include "agent/parallel/timeline_recorder.h"
#include "common/api/timeline.h"
#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// Whether a step belongs to a recording: to the last `steps` of each `everySteps`.
bool is_recorded(const TimelineSpec& spec, int64_t step);

// Records some of this rank's steps (TimelineSpec) and writes each recording to a file, with the
// offset of the rank's clock. Files are for people: what cannot be written is lost, and the first
// loss is logged. One thread.
class Timeline {
 public:
  struct Options {
    TimelineSpec spec;   // everySteps above 0
    std::string folder;  // of the files
    int64_t round = 0;
    int64_t stage = 0;
    int64_t stages = 1;
    int64_t micro_batches = 1;  // of a step
  };
  // World and clock outlive it; the clock is the one that measures steps.
  Timeline(Options options, comm::Communicator& world, const Clock& clock);

  // Returns what records the step; null if it is not recorded.
  parallel::TimelineRecorder* recorder_of(int64_t step);
  // Writes the recording if this step ends one. All ranks call it after each step: clocks are
  // compared then, because they drift. Errors are those of the communicator.
  Status step_done(int64_t step);

 private:
  Status write(const RankTimeline& timeline) const;

  Options options_;
  comm::Communicator& world_;
  const Clock& clock_;
  parallel::TimelineRecorder recorder_;
  bool has_lost_files_ = false;
};

}  // namespace lockstep::train
