#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "agent/server/parameter_client.h"
#include "agent/train/checkpoint/run_settings.h"
#include "agent/train/progress_reporter.h"
#include "agent/train/servers/round_plan.h"
#include "common/api/step_numbers.h"
#include "common/api/worker_config.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// A kind of models that a worker of a job with servers trains, with its data. ServedWorker does the
// rest. Calls block for servers, whose errors blame nobody. One thread.
class ServedTask {
 public:
  // All outlive the task.
  struct Parts {
    const WorkerConfig& config;
    const ServersRound& round;
    server::ParameterClient& servers;
    ProgressReporter& progress;
    const Clock& clock;
  };

  virtual ~ServedTask() = default;

  // Returns what a checkpoint and a job that resumes from it have in common.
  virtual RunSettings settings() const = 0;
  // Returns the tokens of a sample; 0 for samples without tokens.
  virtual int64_t tokens_per_sample() const { return 0; }

  // Rank 0, in a job without a checkpoint: gives the servers the initial values of tensors.
  virtual Status begin_anew() { return {}; }
  // All ranks: training goes on after this step, whose parameters the servers have.
  virtual Status begin_at(int64_t step) = 0;

  struct Step {
    int64_t number = 1;  // counted from 1
    double learning_rate = 0;
    uint32_t counted_workers = 1;  // whose gradients count
    bool may_pull_ahead = false;   // nothing is saved or validated before the next step
  };
  struct Outcome {
    double loss_sum = 0;     // over the terms of the loss of this rank, before the update
    uint64_t counted = 0;    // these terms
    uint64_t staleness = 0;  // the parameters missed updates of at most as many steps
    bool is_late = false;    // the gradients counted for nothing
    StepNumbers numbers;     // seconds by part
  };
  // Pulls, computes, and pushes.
  virtual Result<Outcome> train(const Step& step) = 0;

  // Whether data is held back.
  virtual bool validates() const = 0;
  // Rank 0, while the others wait: fills the numbers of a validation after this step, or leaves
  // them if the process was asked to stop.
  virtual Status validate(int64_t step, StepNumbers& numbers) = 0;
  // Rank 0, after the last step.
  virtual Status finish(int64_t /*step*/) { return {}; }
};

// Returns how many steps' updates a pull with this clock may have missed.
inline uint64_t staleness_of(const server::Transfer::Outcome& pulled, uint64_t clock) {
  return clock - std::min(pulled.slowest, clock);
}

}  // namespace lockstep::train
