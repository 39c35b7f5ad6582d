// Phase 2: data, model and device memory; rank 0 also finds a checkpoint or weights.
#include <string>

#include "agent/train/attention_choice.h"
#include "agent/train/checkpoint/file_io.h"
#include "agent/train/job_plan.h"
#include "agent/train/matmul_peak.h"
#include "agent/train/weights/import_weights.h"
#include "agent/train/worker.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

constexpr size_t kAttentionBytesMax = 16;

}  // namespace

Status Worker::load() {
  progress_.enter(WorkerPhase::kLoading);
  const DataSpec& data = config_.train.data;
  TRY_ASSIGN(data_, open_data(data, design_));
  measure_peak();
  TRY(choose_attention());
  TRY(compose());
  position_.weights_seed = static_cast<uint64_t>(config_.train.seed);
  position_.data_seed = static_cast<uint64_t>(data.seed);
  if (stores()) TRY(open_storage());
  const bool begins = config_.rank == 0 && position_.step == 0;
  return begins && !draws_parameters() ? open_weights() : Status();
}

// Rank 0's stands for all; the memory that it takes is free again before the model's is taken.
void Worker::measure_peak() {
  const bool counts = config_.rank == 0 && device_.type == kernels::DeviceType::kCuda &&
                      agreement_.precision == kernels::Precision::kBf16;
  if (!counts) return;
  Result<double> peak = matmul_peak(device_, {}, clock_);
  if (peak.ok()) {
    matmul_peak_ = *peak;
  } else {
    log_info("the peak matmul speed of the GPU could not be measured",
             {{"reason", peak.error().message}});
  }
}

// A measured choice is kept, so that a run resumed from its checkpoint computes as before.
Status Worker::choose_attention() {
  TRY_ASSIGN(const parallel::ComposeOptions options, compose_options());
  const std::optional<kernels::AttentionShape> shape =
      model::attention_of(design_, parallel::micro_batch_shape(options, PassMode::kTrain));
  if (!shape) return {};
  AttentionWish wish{.setting = config_.train.attention,
                     .shape = *shape,
                     .device = device_,
                     .precision = agreement_.precision,
                     .kept = kept_attention()};
  wish.room = [&](size_t workspace) -> Status {
    const model::AttentionChoice cudnn{
        .by = kernels::AttentionBy::kCudnn, .shape = wish.shape, .workspace_bytes = workspace};
    const uint64_t collectives = world_->device_traits().memory_bytes;
    TRY_ASSIGN(
        const parallel::MemoryPlan plan,
        parallel::plan_memory(options, {.attention = cudnn, .collectives_bytes = collectives}));
    return kernels::check_free_memory(device_, plan.device);
  };
  TRY_ASSIGN(attention_, lockstep::train::choose_attention(*world_, wish, clock_));
  return {};
}

std::optional<kernels::AttentionBy> Worker::kept_attention() const {
  if (!stores() || config_.train.attention != "auto") return {};
  const Result<std::string> kept = read_small_file(attention_file(), kAttentionBytesMax);
  return kept.ok() ? attention_named(*kept) : std::nullopt;
}

// The first choice stays, also where this start could not take it.
void Worker::keep_attention() const {
  if (transformer_of(design_) == nullptr) return;
  if (config_.train.attention != "auto" || kept_attention()) return;
  const Status kept = write_file_synced(attention_file(), name_of(attention_));
  if (kept.ok()) return;
  log_info("the attention choice could not be saved", {{"reason", kept.error().message}});
}

Result<parallel::ComposeOptions> Worker::compose_options() {
  return lockstep::train::compose_options(config_.train, {.mesh = mesh_of(config_.world),
                                                          .groups = config_.world.groups,
                                                          .micro_batch = batch_.micro,
                                                          .micro_batches = batch_.accumulation,
                                                          .precision = agreement_.precision,
                                                          .attention = attention_,
                                                          .device = device_});
}

Status Worker::compose() {
  TRY_ASSIGN(const parallel::ComposeOptions options, compose_options());
  TRY_ASSIGN(model_, parallel::Composition::create(options, *world_, clock_));
  return {};
}

// Rank 0: the newest checkpoint that verifies, if there is one.
Status Worker::open_storage() {
  checkpoints_.emplace(config_.checkpoint.path, config_.checkpoint.keep);
  TRY(checkpoints_->prepare());
  TRY_ASSIGN(const std::optional<VerifiedCheckpoint> newest, checkpoints_->newest());
  if (newest) {
    TRY(check_run(*newest));
    TRY_ASSIGN(StateReader state, StateReader::open(newest->path, parameter_table(design_),
                                                    model_->optimizer_states()));
    initial_state_ = std::make_unique<StateReader>(std::move(state));
    position_.step = newest->manifest.position.step;
    position_.samples = newest->manifest.position.samples;
    saved_step_ = position_.step;
    progress_.numbers().loss = newest->manifest.loss;
    log_info("resuming from a checkpoint", {{"step", position_.step}, {"path", newest->path}});
  }
  keep_attention();
  const std::string metrics = config_.checkpoint.path + "/metrics.jsonl";
  TRY_ASSIGN(metrics_, MetricsFile::open(metrics, position_.step));
  return {};
}

// Older versions stored the data seed with the position, and no other settings. Their optimizer was
// AdamW.
Status Worker::check_run(const VerifiedCheckpoint& checkpoint) const {
  RunSettings stored = checkpoint.manifest.settings;
  stored.emplace("spec.train.data.seed", std::to_string(checkpoint.manifest.position.data_seed));
  stored.emplace("spec.train.optimizer.name", "adamw");
  return check_settings(settings(), stored, checkpoint.path);
}

RunSettings Worker::settings() const {
  return run_settings(config_.train, data_.samples->size());
}

// Rank 0, without a checkpoint, of a job that names weights.
Status Worker::open_weights() {
  const ModelConfig* transformer = transformer_of(design_);
  if (transformer == nullptr) {  // of a configuration that was not validated
    return invalid("spec.train.model.weights.path: expected a transformer, but the family is " +
                       std::string(family_name(design_)),
                   Blame::kConfig);
  }
  Result<WeightsSource> weights =
      WeightsSource::open(config_.train.model.weights.path, *transformer);
  if (!weights.ok()) {
    const Error& error = weights.error();
    return error.with_message("spec.train.model.weights.path: " + error.message);
  }
  initial_state_ = std::make_unique<WeightsSource>(std::move(*weights));
  return {};
}

}  // namespace lockstep::train
