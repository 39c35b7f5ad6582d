#pragma once

#include <cstdint>
#include <memory>

#include "agent/comm/communicator.h"
#include "agent/model/gpt.h"
#include "agent/optim/schedule.h"
#include "agent/parallel/compose.h"
#include "agent/train/data/batch_loader.h"
#include "agent/train/data/device_tokens.h"
#include "agent/train/exit_reason.h"
#include "agent/train/metrics_file.h"
#include "agent/train/step_timer.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

struct TrainStepOptions {
  BatchShape batch;
  int64_t context = 0;
  optim::LearningRateSchedule schedule;
  double clip_norm = 0;
};

// One optimizer step: data, forward, backward, communication, update, each timed. The loss is the
// mean over the global batch, the same bits on every rank. On a GPU the host issues the step and
// waits once, at its end (where gradients go by way of host memory also for the last of them); the
// parts' times are the device's (step_timer.h). One thread.
class TrainStep {
 public:
  // All outlive it.
  struct Parts {
    parallel::Composition& model;
    comm::Communicator& world;
    BatchLoader& loader;
    ExitReason& reason;
    const Clock& clock;
  };
  static Result<TrainStep> create(const TrainStepOptions& options, const Parts& parts);

  struct Outcome {
    StepMetrics metrics;  // without tokens_per_second
    bool stop = false;    // some rank was asked to stop: all of them know it at the same step
  };
  // `step` is counted from 1; `stop`: this rank was asked to. A loss or a norm that isn't finite is
  // kExitNotFinite on every rank; with such a norm nothing is updated.
  Result<Outcome> run(int64_t step, bool stop);

 private:
  TrainStep(const TrainStepOptions& options, const Parts& parts, model::MicroBatch micro,
            std::unique_ptr<TokenFeed> feed)
      : options_(options),
        parts_(parts),
        micro_(std::move(micro)),
        feed_(std::move(feed)),
        timer_(make_step_timer(parts.model.stream(), parts.clock)) {}

  Status accumulate();
  // Computes the outcome of the step over all ranks.
  Status conclude(bool stop, Outcome& outcome);

  TrainStepOptions options_;
  Parts parts_;
  model::MicroBatch micro_;
  std::unique_ptr<TokenFeed> feed_;
  std::unique_ptr<StepTimer> timer_;
};

}  // namespace lockstep::train
