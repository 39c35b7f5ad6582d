#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layout/pipeline_schedule.h"

namespace lockstep {

// PipeDream: the stages train batch after batch and never wait for the end of a step (Narayanan et
// al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", 2019). The unit in flight is
// one batch, with all of its micro-batches. Stage i of p begins with the forwards of p - 1 - i
// batches, then alternates between the next batch's forwards and the oldest batch's backwards, and
// updates after the last of these. Steps are counted from 1, and step n trains batch n.

// The part of a training in which a step runs: the pipeline is empty before step `first` and after
// step `last`.
struct StepWindow {
  int64_t first = 1;
  int64_t step = 1;
  int64_t last = 1;
};

// Returns the actions of a stage from the end of the update before `step` to the update of `step`:
// forwards of later batches, backwards of batch `step`, the update. If `last` changes in the middle
// of a window, it is to stay at or above steps_begun().
std::vector<Action> pipedream_step(const PipelineShape& shape, int64_t stage,
                                   const StepWindow& window);

// Returns the last batch whose forwards a stage has issued once `step` is done.
int64_t steps_begun(const PipelineShape& shape, int64_t stage, const StepWindow& window);

// Returns the version of the parameters that a stage reads in the forward of a batch.
int64_t forward_version(const PipelineShape& shape, int64_t stage, int64_t first, int64_t batch);

// Returns how many versions of its parameters a stage keeps in addition to the latest one.
int64_t stashed_versions(const PipelineShape& shape, int64_t stage);

// Returns all actions of the steps of a window, from an empty pipeline to an empty one.
PipelineSchedule pipedream_schedule(const PipelineShape& shape, int64_t first, int64_t last);

// Checks such a schedule as data, independently of how it was generated. Returns every mistake as a
// sentence; empty if there is none:
// - each micro-batch of each step goes forward and backward through each stage exactly once, in
//   ascending order, with its data and messages at hand, and what it makes is sent exactly once;
// - each step's update follows its last backward, which says that it completes the gradients, and
//   no backward of another step is between its backwards;
// - a forward reads the version that the rules say, which exists and is still kept; all
//   micro-batches of a batch read the same one; backward reads the version that forward has read,
//   or the latest one without stashing;
// - no stage waits forever (schedule_play.h) or has more micro-batches in flight than
//   in_flight_bound() allows.
std::vector<std::string> pipedream_problems(const PipelineShape& shape,
                                            const PipelineSchedule& schedule, int64_t first,
                                            int64_t last);

}  // namespace lockstep
