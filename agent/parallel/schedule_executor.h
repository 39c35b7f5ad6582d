#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "agent/model/model.h"
#include "agent/model/param_store.h"
#include "agent/model/pass_observer.h"
#include "agent/parallel/batch_feed.h"
#include "agent/parallel/stage_links.h"
#include "agent/parallel/step_scalars.h"
#include "agent/parallel/step_sink.h"
#include "agent/parallel/step_timer.h"
#include "common/base/result.h"
#include "common/layout/pipeline_schedule.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// Carries out one rank's actions of a step, in order, and laps the timer after each part.
// Micro-batches may stay in flight from one step to the next. Neither the model nor the sink knows
// the schedule. It issues work on the model's stream and does not wait for it. One thread.
class ScheduleExecutor {
 public:
  // All outlive it.
  struct Parts {
    model::ParamStore& store;
    StepSink& sink;
    StepScalars& scalars;
    const kernels::OpTable& ops;
    kernels::Stream& stream;  // the model's
    StepTimer& timer;
    const StageLinks& links;
  };
  struct Options {
    BatchDesign batch;
    int64_t micro_batches = 1;     // of a step
    std::vector<int64_t> samples;  // of each micro-batch
    // Places of their first samples among the step_samples of a step, on all ranks; empty: nothing
    // is dropped.
    std::vector<int64_t> first_samples;
    int64_t step_samples = 0;
    bool splits_backward = false;  // the gradients of parameters have actions of their own
    float gradient_scale = 1;      // 1 / terms of the loss in the global batch
    // Memory of the device for the data of as many micro-batches as a chunk has in flight; empty if
    // that is one, which is read where the feed has it.
    std::vector<kernels::Workspace> data = {};
    std::function<void(int64_t micro_batch)> observe = {};  // ComposeOptions::observe_micro_batch
  };
  using MicroBatches = std::vector<std::unique_ptr<model::MicroBatch>>;
  // A chunk of the model on this rank.
  struct Chunk {
    model::Model& model;  // outlives the executor
    // As many as are in flight at most. They train, and are nobody else's until they are through.
    MicroBatches micro_batches;
    // Values of the messages from the chunk before and to the next one: all have the size of the
    // largest micro-batch, whatever is behind its rows.
    struct Edges {
      int64_t input = 0;
      int64_t output = 0;
    };
    Edges edges = {};
  };
  ScheduleExecutor(Options options, std::vector<Chunk> chunks, const Parts& parts);
  ScheduleExecutor(const ScheduleExecutor&) = delete;
  ScheduleExecutor& operator=(const ScheduleExecutor&) = delete;

  // Begins to receive the messages of the actions that run() will be called with.
  Status announce(const std::vector<Action>& actions);
  // `update` issues the update of the parameters of `step`. The actions outlive the timer's step.
  // kInternal if the feed ends.
  Status run(int64_t step, const std::vector<Action>& actions, BatchFeed& feed,
             const std::function<Status()>& update);

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
  // Tells the observer which micro-batch the action is about.
  void tell(const Action& action) const;
  Status take(const Action& action, BatchFeed& feed);
  Status keep(const DeviceBatch& batch, size_t place);
  Status receive_activation(const Action& action);
  Status forward(const Action& action);
  Status backward(const Action& action);
  Status backward_weights(const Action& action);
  // Returns the number of its first sample in the order of training.
  int64_t first_sample(const Action& action) const;
  // Begins the pass of a micro-batch.
  Status begin(const Action& action);
  Chunk& chunk_of(const Action& action) { return chunks_[static_cast<size_t>(action.chunk)]; }
  // Micro-batches go forward and backward through a chunk in the same order, so they take turns in
  // the places. So does their data, which one of the chunks reads.
  model::MicroBatch& micro_batch(const Action& action) {
    const MicroBatches& places = chunk_of(action).micro_batches;
    return *places[turn_of(action) % places.size()];
  }
  size_t place_of_data(const Action& action) const { return turn_of(action) % batches_.size(); }
  // Returns the number of a micro-batch among those of all steps, or of this one if steps do not
  // overlap.
  size_t turn_of(const Action& action) const {
    const int64_t before = std::max<int64_t>(action.step, 0) * options_.micro_batches;
    return static_cast<size_t>(before + action.micro_batch);
  }

  Options options_;
  std::vector<Chunk> chunks_;
  Parts parts_;
  HeadLaps laps_;
  std::vector<DeviceBatch> batches_;  // by place of the data
  int64_t step_ = 0;                  // under way
  size_t next_taken_ = 0;             // turn of the next micro-batch to be taken
};

}  // namespace lockstep::parallel
