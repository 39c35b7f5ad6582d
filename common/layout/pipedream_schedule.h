#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layout/pipeline_schedule.h"

namespace lockstep {

// PipeDream: the stages train batch after batch and never wait for the end of a step (Narayanan et
// al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", 2019). The unit in flight is
// one micro-batch; with one micro-batch a batch this is the paper's schedule. Stage i of p begins
// with the forwards of p - 1 - i micro-batches, then alternates between the next forward and the
// oldest backward, across the borders of batches. It updates after the last backward of a batch. So
// with m micro-batches a batch only the first p - 1 - i forwards of a batch, at most, read
// parameters that lack the update of the batch before (if m >= p - 1 - i). Steps are counted from
// 1, and step n trains batch n.

// The part of a training in which a step runs: the pipeline is empty before step `first` and after
// step `last`.
struct StepWindow {
  int64_t first = 1;
  int64_t step = 1;
  int64_t last = 1;
};

// Returns the actions of a stage from the end of the update before `step` to the update of `step`:
// forwards of this and later batches, backwards of batch `step`, the update. `last` may become
// smaller in the middle of a window, but not below a batch whose forwards have begun.
std::vector<Action> pipedream_step(const PipelineShape& shape, int64_t stage,
                                   const StepWindow& window);

// Returns after how many further steps of its own a stage asks for the totals of a step, so that it
// rarely waits for the first stage, which ends a step last.
int64_t totals_delay(const PipelineShape& shape, int64_t stage);
// Returns d so that no stage has begun a batch after s + d when it learns the totals of step s.
int64_t steps_until_empty(const PipelineShape& shape);

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
// - a forward reads the version that the rules say, which exists and is still kept; backward reads
//   the version that forward has read, or the latest one without stashing;
// - no stage waits forever (schedule_play.h) or has more micro-batches in flight than
//   in_flight_bound() allows.
std::vector<std::string> pipedream_problems(const PipelineShape& shape,
                                            const PipelineSchedule& schedule, int64_t first,
                                            int64_t last);

}  // namespace lockstep
