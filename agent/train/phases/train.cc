// Phase 4: steps, with saving and validating in between.
#include <algorithm>
#include <cmath>
#include <string>

#include "agent/comm/topology.h"
#include "agent/train/attention_choice.h"
#include "agent/train/data/token_bytes.h"
#include "agent/train/stop_signal.h"
#include "agent/train/worker.h"
#include "common/api/step_number_table.h"
#include "common/base/log.h"
#include "common/layout/device_peak.h"

namespace lockstep::train {
namespace {

constexpr double kSmoothing = 0.1;  // weight of the newest step in the smoothed time of a step

}  // namespace

Status Worker::train() {
  ProgressNumbers& numbers = progress_.numbers();
  add_position(numbers);
  if (config_.rank == 0) numbers.checkpoint_step = saved_step_;
  StopSignal::arm();
  progress_.enter(WorkerPhase::kTraining);
  if (config_.rank == 0) tell_what_is_trained();
  // A checkpoint is written before its step is validated, so a resumed run validates first. One
  // that resumed from memory may even have to write it.
  if (position_.step > 0) {
    TRY(save_if_due());
    TRY(validate_if_due());
  }
  const int64_t first_step = position_.step;
  const comm::Traffic before = world_->traffic();
  while (!at_end() && !stopping_) {
    TRY(step_once());
    keep_in_memory_if_due();
    TRY(save_if_due());
    if (!stopping_) TRY(validate_if_due());
  }
  TRY(tell_what_was_sent(first_step, before));
  TRY(tell_what_was_kept());
  if (stopping_) TRY(save_if_due());  // the stop may have come during the validation
  return complete_saves();
}

void Worker::tell_what_is_trained() const {
  log_info("training",
           {{"world", comm::topology_summary(*world_)},
            {"device", device_info_.name.empty() ? "CPU" : device_info_.name},
            {"parameters", parameter_count(design_)},
            {"threads", agreement_.threads},
            {"precision", agreement_.precision == kernels::Precision::kBf16 ? "bf16" : "fp32"},
            {"attention", name_of(attention_)},
            {"buckets", model_->buckets()},
            {"microBatch", batch_.micro},
            {"accumulation", batch_.accumulation},
            {"step", position_.step}});
}

// Includes saves and validations between the steps.
Status Worker::tell_what_was_sent(int64_t first_step, const comm::Traffic& before) {
  TRY(model_->settle());
  const comm::Traffic now = world_->traffic();
  const parallel::GradientExchange::SharedTraffic shared = model_->shared_traffic();
  const parallel::OffloadCounts offload = model_->offload_counts();
  log_info("traffic", {{"steps", position_.step - first_step},
                       {"bytesSent", now.bytes_sent - before.bytes_sent},
                       {"bytesReceived", now.bytes_received - before.bytes_received},
                       {"bytesSentToOtherHosts",
                        now.bytes_sent_to_other_hosts - before.bytes_sent_to_other_hosts},
                       {"sharedBytesWritten", shared.bytes_written},
                       {"sharedBytesRead", shared.bytes_read},
                       {"offloadBytesRead", offload.bytes_read},
                       {"offloadBytesWritten", offload.bytes_written},
                       {"offloadSeconds", offload.seconds},
                       {"offloadWaitedSeconds", offload.waited_seconds}});
  return {};
}

Status Worker::step_once() {
  world_->set_silence_limit(hang_limit_.of_next_step());
  TRY_ASSIGN(
      const TrainStep::Outcome outcome,
      step_->run({.step = position_.step + 1,
                  .first_update = first_update(position_.losses),
                  .flush = next_flush(),
                  .mine = {.stop = StopSignal::requested(), .busy = saver_ && saver_->is_busy()},
                  .timeline = timeline_ ? timeline_->recorder_of(position_.step + 1) : nullptr,
                  .before_update = [this] { return keeper_ ? keeper_->wait() : Status(); }}));
  hang_limit_.add_step(from_seconds(outcome.numbers.step_seconds.value_or(0)));
  world_->set_silence_limit(hang_limit_.of_pause());
  position_.step += 1;
  position_.samples += batch_.global();
  stopping_ = outcome.any.stop;
  if (saver_ && saver_->awaits_commit() && !outcome.any.busy) saver_->commit();
  if (saver_) TRY(saver_->poll());
  report(outcome.numbers);
  TRY(judge_loss(outcome));
  return timeline_ ? timeline_->step_done(position_.step) : Status();
}

// If steps overlap, these are the same steps in every run of the job. So a run that was killed and
// resumed has the same bits as one that was not.
int64_t Worker::next_flush() const {
  int64_t flush = config_.train.steps;
  const auto limit = [&](int64_t every) {
    if (every > 0) flush = std::min(flush, (position_.step / every + 1) * every);
  };
  if (stores()) limit(config_.checkpoint.everySteps);
  if (validator_) limit(config_.train.validation.everySteps);
  if (keeper_) limit(config_.checkpoint.memory->everySteps);
  return flush;
}

void Worker::add_position(StepNumbers& numbers) const {
  numbers.step = position_.step;
  numbers.steps = config_.train.steps;
  numbers.samples = position_.samples;
  const int64_t tokens = tokens_per_sample(design_);
  if (tokens > 0) numbers.tokens = position_.samples * tokens;
}

// Peaks are those of bf16, and all GPUs of the job taken to be as rank 0's.
void Worker::add_speed(StepNumbers& numbers) {
  const double seconds = numbers.step_seconds.value_or(0);
  smoothed_seconds_ = smoothed_seconds_ == 0
                          ? seconds
                          : (1 - kSmoothing) * smoothed_seconds_ + kSmoothing * seconds;
  if (smoothed_seconds_ <= 0) return;
  const int64_t tokens = tokens_per_sample(design_);
  const double rate = static_cast<double>(batch_.global()) / smoothed_seconds_;  // of samples
  const auto flops = [&](FlopsFormula formula) {
    return rate * flops_per_sample(design_, tokens, formula);
  };
  const double palm = flops(FlopsFormula::kPalm);
  const double causal = flops(FlopsFormula::kCausal);
  if (tokens > 0) {
    numbers.tokens_per_second = rate * static_cast<double>(tokens);
  } else {
    numbers.samples_per_second = rate;
  }
  numbers.palm_flops_per_second = palm;
  numbers.causal_flops_per_second = causal;
  if (agreement_.precision != kernels::Precision::kBf16) return;
  const auto devices = static_cast<double>(config_.gpus);
  const double datasheet = devices * datasheet_flops_per_second(device_info_.name);
  const double measured = devices * matmul_peak_;
  numbers.palm_mfu = flops_ratio(palm, datasheet);
  numbers.causal_mfu = flops_ratio(causal, datasheet);
  numbers.palm_mfu_of_measured = flops_ratio(palm, measured);
  numbers.causal_mfu_of_measured = flops_ratio(causal, measured);
}

void Worker::report(StepNumbers numbers) {
  add_position(numbers);
  add_speed(numbers);
  ProgressNumbers& page = progress_.numbers();
  update(page, numbers);
  if (page.first_step_unix_seconds == 0) {
    page.first_step_unix_seconds = to_seconds(surroundings_.clock.wall_now().time_since_epoch());
  }
  progress_.publish();
  if (metrics_) metrics_->add(numbers);
}

bool Worker::saves_now() const {
  if (!saver_ || position_.step == saved_step_) return false;
  const CheckpointSpec& checkpoint = config_.checkpoint;
  const bool is_due = checkpoint.everySteps > 0 && position_.step % checkpoint.everySteps == 0;
  return is_due || stopping_ || (at_end() && checkpoint.atEnd);
}

Status Worker::save_if_due() {
  if (!saves_now()) return {};
  hang_limit_.note_pause();
  progress_.enter(WorkerPhase::kSaving);
  TRY(begin_save());
  progress_.enter(WorkerPhase::kTraining);
  return {};
}

Status Worker::begin_save() {
  saved_step_ = position_.step;
  return saver_->begin({.position = position_,
                        .settings = settings(),
                        .loss = loss_,
                        .round = config_.world.round,
                        .mesh = mesh_of(config_.world),
                        .files = {}});
}

// A failed save costs progress only if there is no later one, so the last one is tried again and
// then ends the round.
Status Worker::complete_saves() {
  if (!saver_) return {};
  hang_limit_.note_pause();
  progress_.enter(WorkerPhase::kSaving);
  TRY_ASSIGN(int64_t stored, saver_->finish());
  const bool needs_this_state = saved_step_ == position_.step && position_.step > 0;
  const bool is_stored = !needs_this_state || !saver_->has_begun() || stored == saved_step_;
  if (is_stored) return {};
  TRY(begin_save());
  TRY_ASSIGN(stored, saver_->finish());
  if (stored == saved_step_) return {};
  return unavailable("[checkpoint] the last checkpoint, of step " + std::to_string(saved_step_) +
                         ", could not be saved: " + std::string(progress_.storage().failure.text()),
                     Blame::kStorage);
}

// NAN where no tokens are held back, or nobody knows which bytes they stand for.
Status Worker::measure_validation_bytes() {
  TRY_ASSIGN(const std::optional<int64_t> bytes, validation_bytes(data_));
  validation_bytes_per_token_ = NAN;
  if (!bytes) return {};
  const int64_t tokens = data_.text->count() - data_.validation_begin;
  validation_bytes_per_token_ = static_cast<double>(*bytes) / static_cast<double>(tokens);
  return {};
}

Status Worker::validate_if_due() {
  const int64_t every = config_.train.validation.everySteps;
  const bool due = at_end() || (every > 0 && position_.step % every == 0);
  if (!validator_ || !due) return {};
  hang_limit_.note_pause();
  progress_.enter(WorkerPhase::kValidating);
  TRY_ASSIGN(const std::optional<parallel::Evaluation> evaluation, validator_->run());
  if (!evaluation) {
    stopping_ = true;
    return {};
  }
  StepNumbers& shown = progress_.numbers();
  shown.validation_loss.reset();
  if (std::isfinite(evaluation->loss)) shown.validation_loss = evaluation->loss;
  if (!validation_bytes_per_token_) TRY(measure_validation_bytes());
  const double per_byte = evaluation->loss / *validation_bytes_per_token_;
  shown.validation_loss_per_byte.reset();
  if (std::isfinite(per_byte)) shown.validation_loss_per_byte = per_byte;
  shown.validation_accuracy = evaluation->accuracy;
  shown.validation_top5_accuracy = evaluation->top5_accuracy;
  progress_.enter(WorkerPhase::kTraining);
  if (!metrics_) return {};
  metrics_->add({.step = position_.step,
                 .validation_loss = evaluation->loss,
                 .validation_loss_per_byte = shown.validation_loss_per_byte,
                 .validation_accuracy = evaluation->accuracy,
                 .validation_top5_accuracy = evaluation->top5_accuracy});
  return {};
}

}  // namespace lockstep::train
