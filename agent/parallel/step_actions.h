#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/layout/pipeline_schedule.h"

namespace lockstep::parallel {

// Decides which actions a rank runs in each step. One thread.
class StepActions {
 public:
  virtual ~StepActions() = default;

  // Returns the actions of a step, valid until the next call. Steps ascend by 1. The pipeline is
  // empty after step `flush`, which is this one or a later one and stays the same until it is
  // reached.
  virtual const std::vector<Action>& of(int64_t step, int64_t flush) = 0;
  // Whether the pipeline is empty after the step that of() was called for.
  virtual bool is_flushed() const = 0;
  // Empties the pipeline as early as all ranks can that learn of it with the totals of `step`
  // (LateTotals).
  virtual void flush_soon(int64_t step) = 0;
  // Returns after how many further steps of its own this stage learns a step's totals: it ends a
  // step earlier than the stages before it.
  virtual int64_t delay() const = 0;
};

// Expects a shape that validate() accepts.
std::unique_ptr<StepActions> make_step_actions(const PipelineShape& shape, int64_t stage);

}  // namespace lockstep::parallel
