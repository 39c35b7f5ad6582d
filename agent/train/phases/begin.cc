// Phase 3: all ranks get the same parameters and the same place in the data.
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "agent/train/checkpoint/exchange.h"
#include "agent/train/checkpoint/resume.h"
#include "agent/train/same_start.h"
#include "agent/train/weights/import_weights.h"
#include "agent/train/worker.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

// Facts that rank 0 alone knows, and the others learn from it.
struct StartingPoint {
  double matmul_peak = 0;  // of its GPU's products
  int64_t owner = 0;       // its number in the storage
};

Status set_metrics_aside(const std::string& folder, int64_t owner) {
  const std::string name = folder + "/metrics";
  const std::string kept = name + "-before-" + std::to_string(owner) + ".jsonl";
  if (std::rename((name + ".jsonl").c_str(), kept.c_str()) == 0 || errno == ENOENT) return {};
  return errno_error("[metrics] renaming those of before to " + kept, errno);
}

}  // namespace

Status Worker::share_start() {
  progress_.enter(WorkerPhase::kBroadcasting);
  TRY(share_starting_point());
  TRY(resume_or_begin());
  TRY(map_states());
  go_on_keeping();
  if (config_.rank != 0 || !(stores() || keeper_)) return {};
  progress_.storage().resumed_step = position_.step;
  progress_.storage().skips = position_.losses.skips;
  progress_.publish_storage();
  if (!stores()) return {};
  keep_attention();
  keep_convolutions();
  open_metrics();
  return {};
}

Status Worker::share_starting_point() {
  const StartingPoint mine{matmul_peak_, checkpoints_ ? checkpoints_->owner_number() : 0};
  TRY_ASSIGN(const std::vector<StartingPoint> all, world_->all_gather_value(mine));
  matmul_peak_ = all[0].matmul_peak;
  if (!stores()) return {};
  TRY_ASSIGN(const std::string record, share_text(*world_, format_owner(owner_)));
  TRY_ASSIGN(owner_, parse_owner(record));
  const Status sees = wait_for_owner(*storage_, all[0].owner, record, surroundings_.pause);
  if (sees.ok()) return {};
  if (sees.error().code != Code::kNotFound) return sees;
  return invalid("spec.checkpoint.path: rank " + std::to_string(config_.rank) +
                     " does not see in " + config_.checkpoint.path +
                     " what rank 0 wrote there; all nodes need the same volume (" +
                     sees.error().message + ")",
                 Blame::kConfig);
}

// From memory, else from the newest checkpoint, else from weights, else every rank draws the
// parameters.
Status Worker::resume_or_begin() {
  TRY_ASSIGN(const bool resumed, resume_from_memory());
  if (resumed) return {};
  if (stores()) {
    TRY_ASSIGN(const std::optional<Manifest> found, load_checkpoint());
    const int64_t loaded = found ? found->position.step : -1;
    if (loaded < stored_step_) {  // the newest one was corrupt: memory may have a newer state
      TRY_ASSIGN(const bool is_newer, resume_from_memory());
      if (is_newer) return {};
    }
    if (found) {
      go_on_from(*found);
      return {};
    }
  }
  if (has_weights()) {
    std::unique_ptr<parallel::StateSource> weights;
    if (config_.rank == 0) {
      TRY_ASSIGN(weights, open_weights(config_.train.model.weights.path, design_));
    }
    TRY(model_->load_parameters(weights.get()));
    if (config_.rank == 0) {
      log_info("starting from weights", {{"path", config_.train.model.weights.path}});
    }
    return {};
  }
  if (world_->size() > 1) {
    TRY(expect_same_draws(*world_, draws_digest(design_, position_.weights_seed)));
  }
  return model_->initialise(position_.weights_seed);
}

Result<std::optional<Manifest>> Worker::load_checkpoint(int64_t below) {
  const StateTable table = state_table();
  return resume({.world = *world_,
                 .model = *model_,
                 .storage = *storage_,
                 .folder = checkpoints_ ? &*checkpoints_ : nullptr,
                 .progress = progress_,
                 .table = table,
                 .check = [this](const Manifest& manifest,
                                 const std::string& path) { return check_run(manifest, path); },
                 .below = below});
}

void Worker::go_on_from(const Manifest& manifest) {
  position_.step = manifest.position.step;
  position_.samples = manifest.position.samples;
  position_.losses = manifest.position.losses;
  loss_ = manifest.loss;
  saved_step_ = position_.step;
  if (config_.rank != 0) return;
  progress_.numbers().loss = loss_;
  log_info(
      "resuming from a checkpoint",
      {{"step", position_.step}, {"path", storage_->describe(checkpoint_name(position_.step))}});
}

// Metrics are for people: a job trains without them if their file can't be written. Those of a
// training that starts over because its checkpoints were set aside stay under another name, and
// where that fails under theirs.
void Worker::open_metrics() {
  const bool starts_over = position_.step == 0 && progress_.storage().set_aside > 0;
  const Status kept = starts_over
                          ? set_metrics_aside(config_.checkpoint.path, checkpoints_->owner_number())
                          : Status();
  Result<MetricsFile> opened =
      kept.ok() ? MetricsFile::open(config_.checkpoint.path + "/metrics.jsonl", position_.step)
                : kept.error();
  if (opened.ok()) {
    metrics_ = std::move(*opened);
  } else {
    log_warning("metrics can't be written", {{"reason", opened.error().message}});
  }
}

Status Worker::prepare_steps() {
  loader_.emplace(*data_.samples, BatchLoaderOptions{.shape = batch_,
                                                     .data_rank = model_->place().data,
                                                     .seed = position_.data_seed,
                                                     .position = position_.samples});
  TRY_ASSIGN(const optim::LearningRateSchedule schedule, schedule_of(config_.train));
  TRY_ASSIGN(TrainStep step, TrainStep::create({.schedule = schedule,
                                                .clip_norm = config_.train.optimizer.clipNorm},
                                               {*model_, *loader_}));
  step_.emplace(std::move(step));
  prepare_timeline();
  if (stores()) {
    model_->reserve_snapshot();
    TRY_ASSIGN(outcomes_, world_->twin());
    saver_.emplace(Saver::Parts{.world = *world_,
                                .outcomes = *outcomes_,
                                .model = *model_,
                                .storage = *storage_,
                                .folder = checkpoints_ ? &*checkpoints_ : nullptr,
                                .progress = progress_,
                                .clock = surroundings_.clock},
                   state_table(), owner_);
  }
  if (data_.samples->validation_samples() == 0) return {};
  TRY_ASSIGN(Validator validator,
             Validator::create(
                 {.rows = batch_.micro, .rank = model_->place().data, .ranks = config_.world.data},
                 *model_, *data_.samples));
  validator_.emplace(std::move(validator));
  return {};
}

void Worker::prepare_timeline() {
  if (config_.train.timeline.everySteps == 0 || !stores()) return;
  timeline_.emplace(Timeline::Options{.spec = config_.train.timeline,
                                      .folder = config_.checkpoint.path + "/timeline",
                                      .round = config_.world.round,
                                      .stage = model_->place().pipeline,
                                      .stages = config_.world.pipeline,
                                      .micro_batches = batch_.accumulation},
                    *world_, surroundings_.clock);
}

}  // namespace lockstep::train
