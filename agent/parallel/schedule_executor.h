#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "agent/model/model.h"
#include "agent/model/param_store.h"
#include "agent/model/pass_observer.h"
#include "agent/parallel/batch_feed.h"
#include "agent/parallel/step_scalars.h"
#include "agent/parallel/step_sink.h"
#include "agent/parallel/step_timer.h"
#include "common/base/result.h"
#include "common/layout/pipeline_schedule.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// Carries out one rank's actions of a step, in order, and laps the timer after each part. Neither
// the model nor the sink knows the schedule. It issues work on the model's stream and does not wait
// for it. One thread.
class ScheduleExecutor {
 public:
  // All outlive it.
  struct Parts {
    const model::Model& model;
    model::ParamStore& store;
    StepSink& sink;
    StepScalars& scalars;
    const kernels::OpTable& ops;
    kernels::Stream& stream;  // the model's
    StepTimer& timer;
  };
  struct Options {
    std::vector<Action> actions;  // with one micro-batch in flight and no transport
    int64_t counted = 0;          // terms of the loss per sample (BatchDesign)
    float gradient_scale = 1;     // 1 / terms of the loss in the global batch
  };
  // `micro_batch` trains, and is nobody else's during a step.
  ScheduleExecutor(Options options, std::unique_ptr<model::MicroBatch> micro_batch,
                   const Parts& parts);
  ScheduleExecutor(const ScheduleExecutor&) = delete;
  ScheduleExecutor& operator=(const ScheduleExecutor&) = delete;

  // `update` issues the update of the parameters. kInternal if the feed ends.
  Status run(BatchFeed& feed, const std::function<Status()>& update);

 private:
  // Counts the forward work in the head's backward as forward.
  class HeadLaps final : public model::PassObserver {
   public:
    explicit HeadLaps(StepTimer& timer) : timer_(timer) {}
    void head_forward_issued() override { lap(StepPart::kForward); }
    void head_backward_issued() override { lap(StepPart::kBackward); }
    // Returns the timer's first error.
    const Status& status() const { return status_; }

   private:
    void lap(StepPart part) {
      if (status_.ok()) status_ = timer_.lap(part);
    }

    StepTimer& timer_;
    Status status_;
  };

  Status run(const Action& action, BatchFeed& feed, const std::function<Status()>& update);
  Status take(const Action& action, BatchFeed& feed);
  Status forward();
  Status backward(const Action& action);

  Options options_;
  std::unique_ptr<model::MicroBatch> micro_batch_;
  Parts parts_;
  HeadLaps laps_;
  DeviceBatch batch_;
  int64_t taken_ = 0;  // micro-batches of this step
};

}  // namespace lockstep::parallel
