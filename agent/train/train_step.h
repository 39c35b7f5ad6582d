#pragma once

#include <cstdint>

#include "agent/comm/communicator.h"
#include "agent/model/gpt.h"
#include "agent/optim/schedule.h"
#include "agent/parallel/compose.h"
#include "agent/train/data/batch_loader.h"
#include "agent/train/exit_reason.h"
#include "agent/train/metrics_file.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep {

struct TrainStepOptions {
  BatchShape batch;
  int64_t context = 0;
  LearningRateSchedule schedule;
  double clip_norm = 0;
};

// One optimizer step: data, forward, backward, communication, update, each timed. The loss is the
// mean over the global batch, the same bits on every rank. One thread.
class TrainStep {
 public:
  // All outlive it.
  struct Parts {
    Composition& model;
    Communicator& world;
    BatchLoader& loader;
    ExitReason& reason;
    const Clock& clock;
  };
  static Result<TrainStep> create(const TrainStepOptions& options, const Parts& parts);

  struct Outcome {
    StepMetrics metrics;  // without tokens_per_second
    bool stop = false;    // some rank was asked to stop: all of them know it at the same step
  };
  // `step` is counted from 1; `stop`: this rank was asked to. Nothing is updated where loss or norm
  // isn't finite: that is kExitNotFinite.
  Result<Outcome> run(int64_t step, bool stop);

 private:
  TrainStep(const TrainStepOptions& options, const Parts& parts, MicroBatch micro)
      : options_(options), parts_(parts), micro_(std::move(micro)) {}

  // Seconds since the last call, or since start().
  double lap();
  Result<double> accumulate(StepSeconds& seconds);
  Status reduce(double loss_sum, bool stop, Outcome& outcome);
  Status update(Outcome& outcome);

  TrainStepOptions options_;
  Parts parts_;
  MicroBatch micro_;
  TimePoint mark_{};
};

}  // namespace lockstep
