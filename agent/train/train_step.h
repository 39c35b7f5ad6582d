#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "agent/optim/schedule.h"
#include "agent/parallel/compose.h"
#include "agent/train/data/batch_loader.h"
#include "agent/train/data/device_feed.h"
#include "common/api/step_numbers.h"
#include "common/base/result.h"

namespace lockstep::train {

struct TrainStepOptions {
  optim::LearningRateSchedule schedule;
  double clip_norm = 0;
};

// Optimizer steps on the loader's micro-batches, with the schedule's learning rate. One thread.
class TrainStep {
 public:
  // Both outlive it.
  struct Parts {
    parallel::Composition& model;
    BatchLoader& loader;
  };
  static Result<TrainStep> create(const TrainStepOptions& options, const Parts& parts);

  struct Outcome {
    StepNumbers numbers;  // those that one step has, without rates
    bool stop = false;    // some rank was asked to stop: all of them know it at the same step
  };
  // `step` is counted from 1; `stop`: this rank was asked to. A loss or a norm that isn't finite
  // is kInvalid, blaming kDivergence, on every rank; with such a norm nothing is updated.
  Result<Outcome> run(int64_t step, bool stop);

 private:
  TrainStep(const TrainStepOptions& options, const Parts& parts, std::unique_ptr<DeviceFeed> feed)
      : options_(options), parts_(parts), feed_(std::move(feed)) {}

  TrainStepOptions options_;
  Parts parts_;
  std::unique_ptr<DeviceFeed> feed_;
};

}  // namespace lockstep::train
