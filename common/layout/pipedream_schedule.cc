#include "common/layout/pipedream_schedule.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/layout/stage_pass.h"

namespace lockstep {
namespace {

// How many batches a stage forwards before it needs the first gradient.
int64_t batches_ahead(const PipelineShape& shape, int64_t stage) {
  return shape.stages - 1 - stage;
}

// Builds the actions of a stage for one step.
class StepList {
 public:
  StepList(const PipelineShape& shape, int64_t stage, const StepWindow& window)
      : shape_(shape), stage_(stage), window_(window) {}

  std::vector<Action> build() && {
    const int64_t begun = begun_before();
    const int64_t newest = steps_begun(shape_, stage_, window_);
    // Its forwards alternate with the backwards.
    const int64_t partner = window_.step + batches_ahead(shape_, stage_);
    for (int64_t batch = begun + 1; batch <= newest; ++batch) {
      for (int64_t micro = 0; batch != partner && micro < shape_.micro_batches; ++micro) {
        forward(batch, micro);
      }
    }
    for (int64_t micro = 0; micro < shape_.micro_batches; ++micro) {
      if (newest == partner) forward(partner, micro);
      backward(micro);
    }
    for (const ActionKind kind : {ActionKind::kFinishReductions, ActionKind::kUpdate}) {
      actions_.push_back({.kind = kind, .step = window_.step, .version = window_.step - 1});
    }
    return std::move(actions_);
  }

 private:
  int64_t begun_before() const {
    if (window_.step == window_.first) return window_.first - 1;
    return steps_begun(shape_, stage_, {window_.first, window_.step - 1, window_.last});
  }
  void forward(int64_t batch, int64_t micro) {
    add_pass(shape_, stage_,
             {.kind = ActionKind::kForward,
              .micro_batch = micro,
              .step = batch,
              .version = forward_version(shape_, stage_, window_.first, batch)},
             actions_);
  }
  void backward(int64_t micro) {
    const int64_t batch = window_.step;
    const int64_t stashed = forward_version(shape_, stage_, window_.first, batch);
    add_pass(shape_, stage_,
             {.kind = ActionKind::kBackward,
              .micro_batch = micro,
              .step = batch,
              .version = shape_.versions.stashes ? stashed : batch - 1,
              .completes_gradients = micro + 1 == shape_.micro_batches},
             actions_);
  }

  const PipelineShape& shape_;
  int64_t stage_;
  const StepWindow& window_;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> pipedream_step(const PipelineShape& shape, int64_t stage,
                                   const StepWindow& window) {
  CHECK(window.first <= window.step && window.step <= window.last);
  return StepList(shape, stage, window).build();
}

int64_t steps_begun(const PipelineShape& shape, int64_t stage, const StepWindow& window) {
  return std::min(window.last, window.step + batches_ahead(shape, stage));
}

int64_t forward_version(const PipelineShape& shape, int64_t stage, int64_t first, int64_t batch) {
  const int64_t delay = shape.versions.is_vertical ? shape.stages : shape.stages - stage;
  return std::max(first - 1, batch - delay);
}

int64_t stashed_versions(const PipelineShape& shape, int64_t stage) {
  if (shape.kind != PipelineKind::kPipeDream || !shape.versions.stashes) return 0;
  return shape.versions.is_vertical ? shape.stages - 1 : batches_ahead(shape, stage);
}

PipelineSchedule pipedream_schedule(const PipelineShape& shape, int64_t first, int64_t last) {
  PipelineSchedule schedule(static_cast<size_t>(shape.stages));
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    std::vector<Action>& actions = schedule[static_cast<size_t>(stage)];
    for (int64_t step = first; step <= last; ++step) {
      const std::vector<Action> more = pipedream_step(shape, stage, {first, step, last});
      actions.insert(actions.end(), more.begin(), more.end());
    }
  }
  return schedule;
}

}  // namespace lockstep
