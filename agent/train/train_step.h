#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "agent/optim/schedule.h"
#include "agent/parallel/compose.h"
#include "agent/train/data/batch_loader.h"
#include "agent/train/data/device_feed.h"
#include "common/api/step_numbers.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep::train {

// Returns the schedule of a job; kInvalid for an unknown name.
Result<optim::LearningRateSchedule> schedule_of(const TrainSpec& train);

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

  // Facts about a rank that the others learn with a step.
  struct Flags {
    bool stop = false;  // it was asked to stop
    bool busy = false;  // it is still writing its part of a checkpoint
  };
  struct Request {
    int64_t step = 1;          // counted from 1
    int64_t first_update = 1;  // parallel::StepRequest::first_update
    int64_t flush = 0;         // parallel::StepRequest::flush
    Flags mine = {};
    parallel::TimelineRecorder* timeline = nullptr;  // records the step, if given
    std::function<Status()> before_update = {};      // parallel::StepRequest::before_update
  };
  struct Outcome {
    StepNumbers numbers;      // those that one step has, without rates
    Flags any;                // of some rank, as parallel::StepReport tells
    int64_t known_step = -1;  // parallel::StepReport::known_step, of the loss and the norm
  };
  // With a norm that isn't finite nothing is updated. If steps overlap, the norm that counts is
  // that of the stage.
  Result<Outcome> run(const Request& request);

 private:
  TrainStep(const TrainStepOptions& options, const Parts& parts, std::unique_ptr<DeviceFeed> feed)
      : options_(options), parts_(parts), feed_(std::move(feed)) {}

  TrainStepOptions options_;
  Parts parts_;
  std::unique_ptr<DeviceFeed> feed_;
};

}  // namespace lockstep::train
