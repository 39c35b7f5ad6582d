// Phase 3: all ranks get the same parameters and the same place in the data.
#include <vector>

#include "agent/train/same_start.h"
#include "agent/train/worker.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

// Where rank 0 begins, and what its GPU's products reach; the others learn it from it.
struct StartingPoint {
  int64_t step = 0;
  int64_t samples = 0;
  double matmul_peak = 0;
  // 1: every rank draws the parameters from the seed; 0: rank 0 has them and sends them.
  int64_t draws = 0;
};

}  // namespace

// Rank 0 alone knows whether there is a checkpoint, so its starting point counts for all.
Status Worker::share_start() {
  progress_.enter(WorkerPhase::kBroadcasting);
  const StartingPoint mine{position_.step, position_.samples, matmul_peak_, draws_parameters()};
  TRY_ASSIGN(const std::vector<StartingPoint> all, world_->all_gather_value(mine));
  position_.step = all[0].step;
  position_.samples = all[0].samples;
  matmul_peak_ = all[0].matmul_peak;
  if (all[0].draws == 0) return receive_state();
  TRY(model_->initialise(position_.weights_seed));
  if (world_->size() == 1) return {};
  TRY_ASSIGN(const Digest digest, sample_digest(*model_));
  return expect_same_parameters(*world_, mesh_of(config_.world), digest);
}

// From rank 0's checkpoint or weights.
Status Worker::receive_state() {
  TRY(model_->load_state(initial_state_.get(), position_.step));
  if (position_.step > 0) collected_step_ = position_.step;
  if (initial_state_ != nullptr && position_.step == 0) {
    log_info("starting from weights", {{"path", config_.train.model.weights.path}});
  }
  initial_state_.reset();
  return {};
}

Status Worker::prepare_steps() {
  loader_.emplace(*data_.samples, BatchLoaderOptions{.shape = batch_,
                                                     .data_rank = model_->place().data,
                                                     .seed = position_.data_seed,
                                                     .position = position_.samples});
  const OptimizerSpec& optimizer = config_.train.optimizer;
  TRY_ASSIGN(const optim::ScheduleKind kind, optim::parse_schedule(optimizer.schedule));
  TRY_ASSIGN(TrainStep step,
             TrainStep::create({.schedule = {.kind = kind,
                                             .peak = optimizer.learningRate,
                                             .minimum = optimizer.minimumLearningRate,
                                             .warmup_steps = optimizer.warmupSteps,
                                             .steps = config_.train.steps},
                                .clip_norm = optimizer.clipNorm},
                               {*model_, *loader_}));
  step_.emplace(std::move(step));
  if (data_.samples->validation_samples() == 0) return {};
  TRY_ASSIGN(Validator validator,
             Validator::create(
                 {.rows = batch_.micro, .rank = model_->place().data, .ranks = config_.world.data},
                 *model_, *data_.samples));
  validator_.emplace(std::move(validator));
  return {};
}

}  // namespace lockstep::train
