#include "agent/parallel/step_actions.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/layout/pipedream_schedule.h"
#include "common/layout/schedule_check.h"

namespace lockstep::parallel {
namespace {

// Every step is the same.
class FlushedSteps final : public StepActions {
 public:
  explicit FlushedSteps(std::vector<Action> actions) : actions_(std::move(actions)) {}

  const std::vector<Action>& of(int64_t, int64_t) override { return actions_; }
  bool is_flushed() const override { return true; }
  void flush_soon(int64_t) override {}
  int64_t delay() const override { return 0; }

 private:
  std::vector<Action> actions_;
};

// PipeDream's steps overlap.
//
// A stop: when a stage learns the totals of step s, no stage has begun a batch after s +
// steps_until_empty(). So that is the last batch on all of them.
class OverlappingSteps final : public StepActions {
 public:
  OverlappingSteps(const PipelineShape& shape, int64_t stage) : shape_(shape), stage_(stage) {}

  const std::vector<Action>& of(int64_t step, int64_t flush) override {
    CHECK(step <= flush);
    if (is_flushed()) window_ = {.first = step, .step = step, .last = flush};
    window_.step = step;
    actions_ = pipedream_step(shape_, stage_, window_);
    return actions_;
  }
  bool is_flushed() const override { return window_.step == window_.last; }
  void flush_soon(int64_t step) override {
    window_.last = std::min(window_.last, step + steps_until_empty(shape_));
    CHECK(window_.step <= window_.last);
  }
  int64_t delay() const override { return totals_delay(shape_, stage_); }

 private:
  PipelineShape shape_;
  int64_t stage_;
  StepWindow window_{.first = 0, .step = 0, .last = 0};
  std::vector<Action> actions_;
};

// These steps fill a pipeline of up to 32 stages, keep it full and empty it. More would make the
// lists of many stages long.
void check_overlapping(PipelineShape shape) {
  const int64_t steps = std::min<int64_t>(shape.stages, 32) + 2;
  shape.micro_batches = std::min<int64_t>(shape.micro_batches, 2);
  CHECK(pipedream_problems(shape, pipedream_schedule(shape, 1, steps), 1, steps).empty());
}

}  // namespace

std::unique_ptr<StepActions> make_step_actions(const PipelineShape& shape, int64_t stage) {
  if (shape.kind == PipelineKind::kPipeDream) {
    check_overlapping(shape);
    return std::make_unique<OverlappingSteps>(shape, stage);
  }
  Result<PipelineSchedule> schedule = pipeline_schedule(shape);
  CHECK(schedule.ok() && schedule_problems(shape, *schedule).empty());
  return std::make_unique<FlushedSteps>(std::move((*schedule)[static_cast<size_t>(stage)]));
}

}  // namespace lockstep::parallel
