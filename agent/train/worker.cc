#include "agent/train/worker.h"

#include <string>
#include <utility>

#include "agent/comm/topology.h"
#include "agent/train/attention_choice.h"
#include "agent/train/checkpoint/file_io.h"
#include "agent/train/device_choice.h"
#include "agent/train/matmul_peak.h"
#include "agent/train/same_start.h"
#include "agent/train/sample_text.h"
#include "agent/train/stop_signal.h"
#include "agent/train/weights/import_weights.h"
#include "common/base/log.h"
#include "common/layout/cost.h"
#include "common/layout/device_peak.h"
#include "kernels/device/parallel.h"

namespace lockstep::train {
namespace {

constexpr size_t kAttentionBytesMax = 16;
constexpr double kSmoothing = 0.1;  // weight of the newest step in the smoothed time of a step

// Where rank 0 begins, and what its GPU's products reach; the others learn it from it.
struct StartingPoint {
  int64_t step = 0;
  int64_t samples = 0;
  double matmul_peak = 0;
  // 1: every rank draws the parameters from the seed; 0: rank 0 has them and sends them.
  int64_t draws = 0;
};

}  // namespace

Worker::Worker(WorkerConfig config, ProgressReporter& progress, const Clock& clock)
    : config_(std::move(config)),
      progress_(progress),
      clock_(clock),
      hang_limit_(std::chrono::seconds(config_.hang_seconds), kSilenceLimit) {}

int Worker::run() {
  const Status status = run_phases();
  monitor_.reset();     // which takes a last look
  progress_.publish();  // with the suspect, if there is one
  progress_.follow(nullptr);
  if (status.ok()) return stopping_ ? kExitStopped : 0;
  // A peer that came to a collective too late was there: its connection had not ended.
  const bool is_hang = status.error().code == Code::kTimeout && world_ != nullptr;
  if (is_hang && reason_.exit_code() == kExitPeerLost) {
    (void)reason_.note(kExitPeerHung, status);
  }
  log_error("worker failed", {{"rank", config_.rank},
                              {"step", position_.step},
                              {"exitCode", reason_.exit_code()},
                              {"reason", status.error().message}});
  // Peers that wait for this rank learn why at once, rather than that it is gone.
  if (world_ != nullptr) world_->abort(status.error().message);
  return reason_.exit_code();
}

Status Worker::run_phases() {
  TRY(choose_device());
  TRY(form());
  TRY(load());
  TRY(share_start());
  TRY(prepare_steps());
  TRY(train());
  return stopping_ ? Status() : finish();
}

Status Worker::choose_device() {
  TRY_ASSIGN(device_, reason_.note(kExitNoDevice, rank_device_here(config_.gpu)));
  if (device_.type == kernels::DeviceType::kCpu) return {};
  TRY_ASSIGN(device_info_, reason_.note(kExitNoDevice, kernels::describe(device_)));
  if (const auto board = progress_.gpu_board()) {
    monitor_ = std::make_unique<GpuMonitor>(GpuMonitor::Options{.gpu = device_info_}, *board);
  }
  return {};
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

Status Worker::form() {
  progress_.enter(WorkerPhase::kForming);
  model_config_ = model_config(config_.train);
  TRY(reason_.note(kExitBadConfig, validate(model_config_, 1, "spec.train.model")));
  TRY_ASSIGN(batch_,
             reason_.note(kExitBadConfig, batch_shape(config_.train.batch, config_.world.data)));
  TRY_ASSIGN(world_, form_world(config_, reason_, progress_.board()));
  if (world_->size() > 1) {
    TRY_ASSIGN(world_, serve_device(std::move(world_), device_, reason_));
  }
  progress_.follow(world_.get());
  const RankTraits traits = traits_of_this_machine(config_, device_info_);
  TRY_ASSIGN(agreement_, agree(*world_, traits, config_.train.precision == "bf16", reason_));
  ProgressNumbers& numbers = progress_.numbers();
  numbers.lacks_bf16 = traits.native_bf16 == 0 ? 1 : 0;
  numbers.precision = agreement_.precision == kernels::Precision::kBf16 ? PrecisionInUse::kBf16
                                                                        : PrecisionInUse::kFp32;
  kernels::set_threads(agreement_.threads);
  return {};
}

Status Worker::load() {
  progress_.enter(WorkerPhase::kLoading);
  const DataSpec& data = config_.train.data;
  TRY_ASSIGN(const TokenWidth width, reason_.note(kExitBadConfig, token_width(data.tokenizer)));
  TRY_ASSIGN(source_, reason_.note(kExitDataError, TokenSource::open({data.path, width,
                                                                      model_config_.vocabulary})));
  TRY_ASSIGN(split_, reason_.note(kExitDataError,
                                  split_data({.tokens = source_->count(),
                                              .context = model_config_.context,
                                              .validation_fraction = data.validationFraction},
                                             data.path)));
  measure_peak();
  TRY(choose_attention());
  TRY(compose());
  position_.weights_seed = static_cast<uint64_t>(config_.train.seed);
  position_.data_seed = static_cast<uint64_t>(data.seed);
  if (stores()) TRY(open_storage());
  const bool begins = config_.rank == 0 && position_.step == 0;
  return begins && !draws_parameters() ? import_parameters() : Status();
}

// Any but 0, which stands for rounding to nearest.
uint64_t Worker::rounding_seed() const {
  const bool is_stochastic = config_.train.rounding == "stochastic";
  return is_stochastic ? static_cast<uint64_t>(config_.train.seed) + 1 : 0;
}

// A measured choice is kept, so that a run resumed from its checkpoint computes as before.
Status Worker::choose_attention() {
  TRY_ASSIGN(const parallel::ComposeOptions options, compose_options());
  AttentionWish wish{
      .setting = config_.train.attention,
      .shape = model::attention_shape(model_config_, batch_.micro, model_config_.context),
      .device = device_,
      .precision = agreement_.precision,
      .kept = kept_attention()};
  wish.room = [&](size_t workspace) -> Status {
    TRY_ASSIGN(kernels::ArenaPlan plan,
               parallel::plan_memory(options, {.by = kernels::AttentionBy::kCudnn,
                                               .shape = wish.shape,
                                               .workspace_bytes = workspace}));
    plan.reserve += world_->device_traits().memory_bytes;
    return kernels::check_free_memory(device_, plan);
  };
  TRY_ASSIGN(attention_, lockstep::train::choose_attention(*world_, wish, reason_, clock_));
  return {};
}

std::optional<kernels::AttentionBy> Worker::kept_attention() const {
  if (!stores() || config_.train.attention != "auto") return {};
  const Result<std::string> kept = read_small_file(attention_file(), kAttentionBytesMax);
  return kept.ok() ? attention_named(*kept) : std::nullopt;
}

// The first choice stays, also where this start could not take it.
void Worker::keep_attention() const {
  if (config_.train.attention != "auto" || kept_attention()) return;
  const Status kept = write_file_synced(attention_file(), name_of(attention_));
  if (kept.ok()) return;
  log_info("the attention choice could not be saved", {{"reason", kept.error().message}});
}

Result<parallel::ComposeOptions> Worker::compose_options() {
  TRY_ASSIGN(const Recompute recompute,
             reason_.note(kExitBadConfig, parse_recompute(config_.train.recompute)));
  const OptimizerSpec& optimizer = config_.train.optimizer;
  return parallel::ComposeOptions{.config = model_config_,
                                  .mesh = mesh_of(config_.world),
                                  .groups = config_.world.groups,
                                  .micro_batch = batch_.micro,
                                  .sequence = model_config_.context,
                                  .bucket_bytes = config_.train.bucketBytes,
                                  .optimizer = {.beta1 = optimizer.beta1,
                                                .beta2 = optimizer.beta2,
                                                .epsilon = optimizer.epsilon,
                                                .weight_decay = optimizer.weightDecay,
                                                .rounding_seed = rounding_seed()},
                                  .precision = agreement_.precision,
                                  .recompute = recompute,
                                  .attention = attention_,
                                  .device = device_};
}

Status Worker::compose() {
  TRY_ASSIGN(const parallel::ComposeOptions options, compose_options());
  TRY_ASSIGN(model_, parallel::Composition::create(options, *world_));
  return {};
}

ModelState Worker::model_state() const {
  const parallel::DeviceState arenas = model_->state();
  return {.config = model_config_,
          .shard = {},
          .arena = &model_->store().arena(),
          .parameters = arenas.parameters,
          .first_moments = arenas.first_moments,
          .second_moments = arenas.second_moments};
}

RunSettings Worker::settings() const {
  return run_settings(config_.train, source_->count());
}

// Older versions stored the data seed with the position, and no other settings.
Status Worker::check_run(const VerifiedCheckpoint& checkpoint) const {
  RunSettings stored = checkpoint.manifest.settings;
  stored.emplace("spec.train.data.seed", std::to_string(checkpoint.manifest.position.data_seed));
  return check_settings(settings(), stored, checkpoint.path);
}

// Rank 0: the newest checkpoint that verifies, if there is one.
Status Worker::open_storage() {
  checkpoints_.emplace(config_.checkpoint.path, config_.checkpoint.keep);
  TRY(reason_.note(kExitStorageError, checkpoints_->prepare()));
  TRY_ASSIGN(const std::optional<VerifiedCheckpoint> newest,
             reason_.note(kExitStorageError, checkpoints_->newest()));
  if (newest) {
    TRY(reason_.note(kExitBadConfig, check_run(*newest)));
    const Status loaded = load_model_state(newest->path, model_state(), model_->transfer());
    const bool other_model = !loaded.ok() && loaded.error().code == Code::kInvalid;
    TRY(reason_.note(other_model ? kExitBadConfig : kExitStorageError, loaded));
    position_.step = newest->manifest.position.step;
    position_.samples = newest->manifest.position.samples;
    saved_step_ = position_.step;
    progress_.numbers().loss = newest->manifest.loss;
    log_info("resuming from a checkpoint", {{"step", position_.step}, {"path", newest->path}});
  }
  keep_attention();
  const std::string metrics = config_.checkpoint.path + "/metrics.jsonl";
  TRY_ASSIGN(metrics_, reason_.note(kExitStorageError, MetricsFile::open(metrics, position_.step)));
  return {};
}

// Rank 0, without a checkpoint, of a job that names weights.
Status Worker::import_parameters() {
  const std::string& path = config_.train.model.weights.path;
  Status imported = import_weights(path, model_config_, model_->store().arena(),
                                   model_->state().parameters, model_->transfer());
  if (!imported.ok()) {
    const bool other_model = imported.error().code == Code::kInvalid;
    imported =
        Error{imported.error().code, "spec.train.model.weights.path: " + imported.error().message};
    return reason_.note(other_model ? kExitBadConfig : kExitDataError, imported);
  }
  log_info("starting from weights", {{"path", path}});
  return {};
}

// Rank 0 alone knows whether there is a checkpoint, so its starting point counts for all.
Status Worker::share_start() {
  progress_.enter(WorkerPhase::kBroadcasting);
  const StartingPoint mine{position_.step, position_.samples, matmul_peak_, draws_parameters()};
  TRY_ASSIGN(const std::vector<StartingPoint> all,
             reason_.note(kExitPeerLost, world_->all_gather_value(mine)));
  position_.step = all[0].step;
  position_.samples = all[0].samples;
  matmul_peak_ = all[0].matmul_peak;
  if (all[0].draws == 0) {
    return reason_.note(kExitPeerLost, model_->broadcast_state(position_.step));
  }
  TRY(model_->initialise(position_.weights_seed));
  if (world_->size() == 1) return {};
  TRY_ASSIGN(const Digest digest, sample_digest(*model_));
  return expect_same_parameters(*world_, digest, reason_);
}

Status Worker::prepare_steps() {
  loader_.emplace(*source_, split_,
                  BatchLoaderOptions{.shape = batch_,
                                     .data_rank = model_->place().data,
                                     .seed = position_.data_seed,
                                     .position = position_.samples});
  const OptimizerSpec& optimizer = config_.train.optimizer;
  TRY_ASSIGN(const optim::ScheduleKind kind,
             reason_.note(kExitBadConfig, optim::parse_schedule(optimizer.schedule)));
  TRY_ASSIGN(TrainStep step,
             TrainStep::create({.batch = batch_,
                                .context = model_config_.context,
                                .schedule = {.kind = kind,
                                             .peak = optimizer.learningRate,
                                             .minimum = optimizer.minimumLearningRate,
                                             .warmup_steps = optimizer.warmupSteps,
                                             .steps = config_.train.steps},
                                .clip_norm = optimizer.clipNorm},
                               {*model_, *world_, *loader_, reason_, clock_}));
  step_.emplace(std::move(step));
  if (split_.validation_tokens() == 0) return {};
  TRY_ASSIGN(Validator validator,
             Validator::create(split_, batch_.micro, {*model_, *world_, *source_, reason_}));
  validator_.emplace(std::move(validator));
  return {};
}

Status Worker::train() {
  ProgressNumbers& numbers = progress_.numbers();
  numbers.step = position_.step;
  numbers.steps = config_.train.steps;
  numbers.samples = position_.samples;
  numbers.tokens = position_.samples * model_config_.context;
  numbers.checkpoint_step = saved_step_;
  StopSignal::arm();
  progress_.enter(WorkerPhase::kTraining);
  if (config_.rank == 0) tell_what_is_trained();
  // A checkpoint is written before its step is validated, so a resumed run validates first.
  if (position_.step > 0) TRY(validate_if_due());
  while (!at_end() && !stopping_) {
    TRY(step_once());
    TRY(save_if_due());
    if (!stopping_) TRY(validate_if_due());
  }
  return stopping_ ? save_if_due() : Status();  // the stop may have come during the validation
}

void Worker::tell_what_is_trained() const {
  log_info("training",
           {{"world", comm::topology_summary(*world_)},
            {"device", device_info_.name.empty() ? "CPU" : device_info_.name},
            {"parameters", parameter_count(model_config_)},
            {"threads", agreement_.threads},
            {"precision", agreement_.precision == kernels::Precision::kBf16 ? "bf16" : "fp32"},
            {"attention", name_of(attention_)},
            {"buckets", model_->sink().buckets().size()},
            {"microBatch", batch_.micro},
            {"accumulation", batch_.accumulation},
            {"step", position_.step}});
  const kernels::ArenaPlan& memory = model_->memory();
  log_info("memory",
           {{"parametersBytes", kernels::bytes_of(memory, kernels::ArenaUse::kParameters)},
            {"gradientsBytes", kernels::bytes_of(memory, kernels::ArenaUse::kGradients)},
            {"optimizerBytes", kernels::bytes_of(memory, kernels::ArenaUse::kOptimizer)},
            {"activationsBytes", kernels::bytes_of(memory, kernels::ArenaUse::kActivations)},
            {"workspaceBytes", kernels::bytes_of(memory, kernels::ArenaUse::kWorkspace)},
            {"recompute", config_.train.recompute},
            {"totalBytes", memory.bytes},
            {"reserveBytes", memory.reserve}});
}

Status Worker::step_once() {
  world_->set_silence_limit(hang_limit_.of_next_step());
  TRY_ASSIGN(const TrainStep::Outcome outcome,
             step_->run(position_.step + 1, StopSignal::requested()));
  hang_limit_.add_step(from_seconds(outcome.metrics.seconds.total));
  world_->set_silence_limit(hang_limit_.of_pause());
  position_.step += 1;
  position_.samples += batch_.global();
  stopping_ = outcome.stop;
  return report(outcome.metrics);
}

// Peaks are those of bf16, and all GPUs of the job taken to be as rank 0's.
StepFlops Worker::flops_of(double tokens_per_second) const {
  const auto by = [&](FlopsFormula formula) {
    return tokens_per_second * flops_per_token(model_config_, model_config_.context, formula);
  };
  StepFlops flops{.palm = by(FlopsFormula::kPalm), .causal = by(FlopsFormula::kCausal)};
  if (agreement_.precision != kernels::Precision::kBf16) return flops;
  const auto devices = static_cast<double>(config_.gpus);
  flops.datasheet_peak = devices * datasheet_flops_per_second(device_info_.name);
  flops.measured_peak = devices * matmul_peak_;
  return flops;
}

Status Worker::report(const StepMetrics& step) {
  StepMetrics metrics = step;
  const double seconds = metrics.seconds.total;
  smoothed_seconds_ = smoothed_seconds_ == 0
                          ? seconds
                          : (1 - kSmoothing) * smoothed_seconds_ + kSmoothing * seconds;
  const auto tokens = static_cast<double>(batch_.global() * model_config_.context);
  metrics.tokens_per_second = smoothed_seconds_ > 0 ? tokens / smoothed_seconds_ : 0;
  metrics.flops = flops_of(metrics.tokens_per_second);

  ProgressNumbers& numbers = progress_.numbers();
  numbers.step = position_.step;
  numbers.samples = position_.samples;
  numbers.tokens = position_.samples * model_config_.context;
  numbers.loss = metrics.loss;
  numbers.gradient_norm = metrics.gradient_norm;
  numbers.learning_rate = metrics.learning_rate;
  numbers.tokens_per_second = metrics.tokens_per_second;
  numbers.palm_flops_per_second = metrics.flops.palm;
  numbers.causal_flops_per_second = metrics.flops.causal;
  numbers.datasheet_flops_per_second = metrics.flops.datasheet_peak;
  numbers.measured_flops_per_second = metrics.flops.measured_peak;
  numbers.data_seconds = metrics.seconds.data;
  numbers.forward_seconds = metrics.seconds.forward;
  numbers.backward_seconds = metrics.seconds.backward;
  numbers.communication_seconds = metrics.seconds.communication;
  numbers.update_seconds = metrics.seconds.update;
  numbers.step_seconds = seconds;
  if (numbers.first_step_unix_seconds == 0) {
    numbers.first_step_unix_seconds = to_seconds(clock_.wall_now().time_since_epoch());
  }
  progress_.publish();
  return metrics_ ? reason_.note(kExitStorageError, metrics_->add(metrics)) : Status();
}

bool Worker::saves_now() const {
  if (position_.step == saved_step_) return false;
  const CheckpointSpec& checkpoint = config_.checkpoint;
  const bool is_due = checkpoint.everySteps > 0 && position_.step % checkpoint.everySteps == 0;
  return is_due || stopping_ || (at_end() && checkpoint.atEnd);
}

Status Worker::save_if_due() {
  if (!saves_now()) return {};
  hang_limit_.note_pause();  // the others wait in the next step
  if (!stores()) return {};
  progress_.enter(WorkerPhase::kSaving);
  const Status saved = checkpoints_->save({.position = position_,
                                           .settings = settings(),
                                           .loss = progress_.numbers().loss,
                                           .round = config_.world.round,
                                           .files = {}},
                                          model_state_files(model_state()), model_->transfer());
  TRY(reason_.note(kExitStorageError, saved));
  saved_step_ = position_.step;
  progress_.numbers().checkpoint_step = saved_step_;
  progress_.enter(WorkerPhase::kTraining);
  return {};
}

Status Worker::validate_if_due() {
  const int64_t every = config_.train.validation.everySteps;
  const bool due = at_end() || (every > 0 && position_.step % every == 0);
  if (!validator_ || !due) return {};
  hang_limit_.note_pause();
  progress_.enter(WorkerPhase::kValidating);
  TRY_ASSIGN(const std::optional<double> loss, validator_->run());
  if (!loss) {
    stopping_ = true;
    return {};
  }
  progress_.numbers().validation_loss = *loss;
  progress_.enter(WorkerPhase::kTraining);
  if (!metrics_) return {};
  return reason_.note(kExitStorageError,
                      metrics_->add(ValidationMetrics{.step = position_.step, .loss = *loss}));
}

// Rank 0 alone has something left to do once all have come to the end: nobody waits for that. Its
// exit code still counts, so a round in which it fails is a failed round.
Status Worker::finish() {
  progress_.enter(WorkerPhase::kFinishing);
  TRY(reason_.note(kExitPeerLost, world_->barrier()));
  progress_.follow(nullptr);  // the others may leave
  if (config_.rank == 0 && config_.train.sample.tokens > 0) TRY(sample());
  progress_.enter(WorkerPhase::kDone);
  return {};
}

Status Worker::sample() {
  TRY_ASSIGN(const TokenWidth width, token_width(config_.train.data.tokenizer));
  TRY_ASSIGN(const std::string text,
             reason_.note(kExitBadConfig,
                          sample_text(model_->model(), model_->store(), config_.train.sample,
                                      *source_, width, model_->micro_batch_memory())));
  log_info("sample", {{"text", text}});
  if (!stores()) return {};
  return reason_.note(kExitStorageError,
                      write_file_synced(config_.checkpoint.path + "/sample.txt", text));
}

}  // namespace lockstep::train
