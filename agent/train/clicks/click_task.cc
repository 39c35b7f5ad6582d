#include "agent/train/clicks/click_task.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "agent/server/limits.h"
#include "agent/train/stop_signal.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

constexpr int64_t kValidationRows = 4096;

}  // namespace

ClickTask::ClickTask(const Parts& parts, std::shared_ptr<const ClickLog> log)
    : parts_(parts),
      log_(std::move(log)),
      step_(parts.servers, parts.config.train.model, parts.round.encodings, parts.clock) {}

Result<std::unique_ptr<ServedTask>> ClickTask::open(const Parts& parts) {
  TRY_ASSIGN(std::shared_ptr<const ClickLog> log, ClickLog::open(parts.config.train.data));
  return std::unique_ptr<ServedTask>(new ClickTask(parts, std::move(log)));
}

RunSettings ClickTask::settings() const {
  return run_settings(parts_.config.train, std::to_string(log_->bytes()) + " bytes");
}

Status ClickTask::begin_anew() {
  return step_.put_layers(static_cast<uint64_t>(parts_.config.train.seed));
}

Status ClickTask::begin_at(int64_t step) {
  reader_.emplace(log_, log_->training());
  reader_->skip(step * parts_.config.train.batch.global);
  step_.forget_next();
  read_step_ = step;
  return {};
}

int64_t ClickTask::share() const {
  return parts_.config.train.batch.global / static_cast<int64_t>(parts_.round.workers);
}

// Reads the rows of the step after the last one that was read.
Status ClickTask::read(ClickRows& rows) {
  rows.clear();
  const int64_t first = share() * parts_.config.rank;
  TRY(reader_->read(parts_.config.train.batch.global, first, first + share(), rows));
  ++read_step_;
  if (rows.keys.size() <= server::kKeysMax) return {};
  return invalid("[train] " + std::to_string(rows.keys.size()) +
                     " features of a rank in a step, expected at most " +
                     std::to_string(server::kKeysMax) +
                     ": lower spec.train.batch.global, or add workers",
                 Blame::kConfig);
}

Result<ServedTask::Outcome> ClickTask::train(const Step& step) {
  const TimePoint began = parts_.clock.now();
  TRY(std::exchange(next_failure_, Status()));
  if (read_step_ == step.number) {
    std::swap(rows_, next_rows_);
  } else {
    TRY(read(rows_));
  }
  Outcome outcome{.counted = rows_.size()};
  outcome.numbers.data_seconds = to_seconds(parts_.clock.now() - began);
  const auto read_next = [&]() -> Result<const ClickRows*> {
    if (step.number >= parts_.config.train.steps || !step.may_pull_ahead) return nullptr;
    next_failure_ = read(next_rows_);
    return next_failure_.ok() ? &next_rows_ : nullptr;
  };
  TRY_ASSIGN(const ClickStep::Outcome done,
             step_.train(rows_,
                         {.clock = static_cast<uint64_t>(step.number - 1),
                          .scale = 1 / static_cast<double>(share() * step.counted_workers),
                          .learning_rate = step.learning_rate},
                         read_next));
  outcome.loss_sum = done.loss_sum;
  outcome.staleness = done.staleness;
  outcome.is_late = done.is_late;
  *outcome.numbers.data_seconds += done.seconds_next;
  outcome.numbers.forward_seconds = done.seconds_forward;
  outcome.numbers.backward_seconds = done.seconds_backward;
  outcome.numbers.communication_seconds = done.seconds_pull + done.seconds_push;
  return outcome;
}

Status ClickTask::validate(int64_t step, StepNumbers& numbers) {
  ClickReader reader(log_, log_->validation());
  ClickRows rows;
  std::vector<float> labels;
  std::vector<double> logits;
  while (true) {
    rows.clear();
    TRY(reader.read_on(kValidationRows, rows));
    if (rows.size() == 0) break;
    if (StopSignal::requested()) return {};
    labels.insert(labels.end(), rows.labels.begin(), rows.labels.end());
    TRY(step_.predict(rows, static_cast<uint64_t>(step), logits));
  }
  const double loss = model::log_loss_sum(labels, logits) / static_cast<double>(labels.size());
  if (std::isfinite(loss)) numbers.validation_loss = loss;
  numbers.validation_auc = model::auc(labels, logits);
  log_info("validation", {{"step", step}, {"logLoss", loss}, {"auc", *numbers.validation_auc}});
  return {};
}

}  // namespace lockstep::train
