#include "agent/train/servers/dense_task.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/train/data/token_bytes.h"
#include "agent/train/forming.h"
#include "agent/train/holdings.h"
#include "agent/train/job_plan.h"
#include "agent/train/sample_text.h"
#include "agent/train/weights/import_weights.h"
#include "common/base/log.h"

namespace lockstep::train {

namespace {

// Running statistics travel in fp32: they differ by orders of magnitude, and a variance must not
// become 0.
std::vector<server::Encodings> encodings_of(const ModelDesign& design,
                                            const server::Encodings& encodings) {
  std::vector<server::Encodings> by_id;
  for (const Parameter& parameter : parameter_table(design)) {
    by_id.push_back(parameter.is_statistic ? server::Encodings() : encodings);
  }
  return by_id;
}

}  // namespace

DenseTask::DenseTask(const Parts& parts)
    : parts_(parts),
      train_(parts.config.train),
      design_(model_design(train_)),
      remote_(parts.servers, encodings_of(design_, parts.round.encodings)) {}

// Servers may never answer any more, so the model's end must not wait for them.
DenseTask::~DenseTask() {
  remote_.cancel();
}

Result<std::unique_ptr<ServedTask>> DenseTask::open(const Parts& parts) {
  std::unique_ptr<DenseTask> task(new DenseTask(parts));
  TRY(task->build());
  return std::unique_ptr<ServedTask>(std::move(task));
}

Status DenseTask::build() {
  TRY(lockstep::validate(design_, 1, "spec.train.model"));
  TRY_ASSIGN(data_, open_data(train_.data, design_));
  const ServersRound& round = parts_.round;
  TRY_ASSIGN(batch_, batch_shape(train_.batch, {.data = round.workers}));
  TRY_ASSIGN(parallel::ComposeOptions options, served_options(train_, batch_, parts_.config.rank));
  const int64_t counted = round.workers - round.consistency.backup_workers;
  options.counted_samples = batch_.global() / round.workers * counted;
  options.remote = &remote_;
  TRY_ASSIGN(alone_, comm::make_communicator({.peers = std::vector<comm::PeerAddress>(1)}));
  TRY_ASSIGN(model_, parallel::Composition::create(options, *alone_, parts_.clock));
  for (const int64_t rows : options.samples) terms_ += rows * model_->batch_design().counted;
  const Holdings holdings = holdings_of(options, model_->memory());
  parts_.progress.numbers().holdings = holdings;
  parts_.progress.publish();
  log_info("memory", {{"parametersBytes", holdings.parameters_bytes},
                      {"gradientsBytes", holdings.gradients_bytes},
                      {"activationsBytes", holdings.activations_bytes},
                      {"totalBytes", model_->memory().device.bytes}});
  return {};
}

RunSettings DenseTask::settings() const {
  return run_settings(train_, data_.samples->size());
}

int64_t DenseTask::tokens_per_sample() const {
  return lockstep::tokens_per_sample(design_);
}

Status DenseTask::begin_anew() {
  const std::string& weights = train_.model.weights.path;
  if (weights.empty()) return model_->initialise(static_cast<uint64_t>(train_.seed));
  TRY_ASSIGN(const auto source, open_weights(weights, design_));
  TRY(model_->load_parameters(source.get()));
  log_info("starting from weights", {{"path", weights}});
  return {};
}

Status DenseTask::begin_at(int64_t step) {
  loader_.emplace(*data_.samples,
                  BatchLoaderOptions{.shape = batch_,
                                     .data_rank = parts_.config.rank,
                                     .seed = static_cast<uint64_t>(train_.data.seed),
                                     .position = step * batch_.global()});
  TRY_ASSIGN(const optim::LearningRateSchedule schedule, schedule_of(train_));
  TRY_ASSIGN(TrainStep steps, TrainStep::create({.schedule = schedule}, {*model_, *loader_}));
  step_.emplace(std::move(steps));
  if (validates() && parts_.config.rank == 0) {
    TRY_ASSIGN(Validator validator,
               Validator::create({.rows = batch_.micro}, *model_, *data_.samples));
    validator_.emplace(std::move(validator));
  }
  return model_->pull_parameters(step);
}

Result<ServedTask::Outcome> DenseTask::train(const Step& step) {
  TRY_ASSIGN(TrainStep::Outcome done, step_->run({.step = step.number}));
  Outcome outcome{.counted = static_cast<uint64_t>(terms_),
                  .staleness = remote_.take_staleness(),
                  .is_late = remote_.take_lateness(),
                  .numbers = done.numbers};
  outcome.loss_sum = *done.numbers.loss * static_cast<double>(terms_);
  outcome.numbers.loss.reset();           // of this rank's samples
  outcome.numbers.gradient_norm.reset();  // unknown
  return outcome;
}

// Pulled anew: others may have updated since this rank's last step.
Status DenseTask::validate(int64_t step, StepNumbers& numbers) {
  TRY(model_->pull_parameters(step));
  TRY_ASSIGN(const std::optional<parallel::Evaluation> evaluation, validator_->run());
  if (!evaluation) return {};
  if (std::isfinite(evaluation->loss)) numbers.validation_loss = evaluation->loss;
  numbers.validation_accuracy = evaluation->accuracy;
  numbers.validation_top5_accuracy = evaluation->top5_accuracy;
  TRY_ASSIGN(const std::optional<int64_t> bytes, validation_bytes(data_));
  if (!bytes || !numbers.validation_loss) return {};
  const auto tokens = static_cast<double>(data_.text->count() - data_.validation_begin);
  numbers.validation_loss_per_byte = evaluation->loss / (static_cast<double>(*bytes) / tokens);
  return {};
}

Status DenseTask::finish(int64_t step) {
  if (data_.text == nullptr || train_.sample.tokens == 0) return {};
  TRY(model_->pull_parameters(step));
  TRY_ASSIGN(const std::optional<std::string> text, sample_text(*model_, train_.sample, data_));
  if (text) keep_sample(*text, parts_.config.checkpoint.path);
  return {};
}

}  // namespace lockstep::train
