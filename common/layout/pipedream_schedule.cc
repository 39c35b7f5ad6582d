#include "common/layout/pipedream_schedule.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/layout/stage_pass.h"

namespace lockstep {
namespace {

int64_t ceil_of(int64_t dividend, int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

// How many micro-batches a stage forwards before it needs the first gradient.
int64_t ahead(const PipelineShape& shape, int64_t stage) {
  return shape.stages - 1 - stage;
}

// How many backwards the stage that chooses a micro-batch's version issues between its forward and
// its backward, at most.
int64_t lag(const PipelineShape& shape, int64_t stage) {
  return ahead(shape, shape.versions.is_vertical ? 0 : stage);
}

// Builds the actions of a stage for one step. Micro-batches have numbers from the window's first
// one on: 0, 1, ...
class StepList {
 public:
  StepList(const PipelineShape& shape, int64_t stage, const StepWindow& window)
      : shape_(shape),
        stage_(stage),
        window_(window),
        count_((window.last - window.first + 1) * shape.micro_batches) {}

  std::vector<Action> build() && {
    const int64_t begin = (window_.step - window_.first) * shape_.micro_batches;
    if (begin == 0) {
      for (int64_t n = 0; n < ahead(shape_, stage_); ++n) forward(n);
    }
    for (int64_t n = begin; n < begin + shape_.micro_batches; ++n) {
      forward(n + ahead(shape_, stage_));
      backward(n);
    }
    for (const ActionKind kind : {ActionKind::kFinishReductions, ActionKind::kUpdate}) {
      actions_.push_back({.kind = kind, .step = window_.step, .version = window_.step - 1});
    }
    return std::move(actions_);
  }

 private:
  int64_t batch_of(int64_t n) const { return window_.first + n / shape_.micro_batches; }
  int64_t micro_of(int64_t n) const { return n % shape_.micro_batches; }
  // The latest version when the forward is issued: on this stage, or with vertical sync on the
  // first one.
  int64_t version_of(int64_t n) const {
    const int64_t backwards = std::max<int64_t>(n - lag(shape_, stage_), 0);
    return window_.first - 1 + backwards / shape_.micro_batches;
  }
  void forward(int64_t n) {
    if (n >= count_) return;
    add_pass(shape_, stage_,
             {.kind = ActionKind::kForward,
              .micro_batch = micro_of(n),
              .step = batch_of(n),
              .version = version_of(n)},
             actions_);
  }
  void backward(int64_t n) {
    add_pass(shape_, stage_,
             {.kind = ActionKind::kBackward,
              .micro_batch = micro_of(n),
              .step = batch_of(n),
              .version = shape_.versions.stashes ? version_of(n) : batch_of(n) - 1,
              .completes_gradients = micro_of(n) + 1 == shape_.micro_batches},
             actions_);
  }

  const PipelineShape& shape_;
  int64_t stage_;
  const StepWindow& window_;
  int64_t count_;  // of the window's micro-batches
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> pipedream_step(const PipelineShape& shape, int64_t stage,
                                   const StepWindow& window) {
  CHECK(window.first <= window.step && window.step <= window.last);
  return StepList(shape, stage, window).build();
}

int64_t totals_delay(const PipelineShape& shape, int64_t stage) {
  return ceil_of(stage, shape.micro_batches);
}

int64_t steps_until_empty(const PipelineShape& shape) {
  int64_t most = 0;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    const int64_t begun = ceil_of(ahead(shape, stage), shape.micro_batches);
    most = std::max(most, totals_delay(shape, stage) + begun);
  }
  return most;
}

int64_t stashed_versions(const PipelineShape& shape, int64_t stage) {
  if (shape.kind != PipelineKind::kPipeDream || !shape.versions.stashes) return 0;
  return ceil_of(lag(shape, stage), shape.micro_batches);
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
