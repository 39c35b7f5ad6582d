#include "agent/train/train_step.h"

#include <cmath>
#include <utility>

#include "agent/model/passes.h"
#include "common/api/worker_config.h"

namespace lockstep::train {
namespace {

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

// Sent by each rank to the others in every step.
struct RankReport {
  double loss_sum = 0;
  int64_t stop = 0;
};

}  // namespace

Result<TrainStep> TrainStep::create(const TrainStepOptions& options, const Parts& parts) {
  TRY_ASSIGN(model::MicroBatch micro, parts.model.make_micro_batch(PassMode::kTrain));
  TRY_ASSIGN(std::unique_ptr<TokenFeed> feed,
             TokenFeed::create(parts.loader, parts.model.stream(),
                               {parts.model.token_memory(0), parts.model.token_memory(1)}));
  return TrainStep(options, parts, std::move(micro), std::move(feed));
}

// The micro-batches of this rank.
Status TrainStep::accumulate() {
  parallel::Composition& model = parts_.model;
  const auto tokens = static_cast<double>(options_.batch.global() * options_.context);
  HeadLaps head_laps(*timer_);
  model.begin_step();
  TRY(timer_->lap(StepPart::kUpdate));  // which begins with zeroes
  for (int64_t index = 0; index < options_.batch.accumulation; ++index) {
    TRY_ASSIGN(const DeviceTokens batch, parts_.reason.note(kExitDataError, feed_->next()));
    TRY(timer_->lap(StepPart::kData));
    TRY(model.model().begin(micro_, {.tokens = batch.tokens,
                                     .targets = batch.targets,
                                     .batch = batch.rows,
                                     .sequence = options_.context,
                                     .gradient_scale = static_cast<float>(1.0 / tokens),
                                     .observer = &head_laps}));
    TRY(model::forward_pass(model.model(), model.store(), micro_));
    TRY(timer_->lap(StepPart::kForward));
    if (index + 1 == options_.batch.accumulation) model.sink().enable_reduction();
    TRY(parts_.reason.note(
        kExitPeerLost, model::backward_pass(model.model(), model.store(), micro_, model.sink())));
    TRY(head_laps.status());
    model.add_losses(micro_);
    TRY(timer_->lap(StepPart::kBackward));
  }
  TRY(parts_.reason.note(kExitPeerLost, model.sink().finish()));
  return timer_->lap(StepPart::kCommunication);
}

Status TrainStep::conclude(bool stop, Outcome& outcome) {
  StepMetrics& metrics = outcome.metrics;
  // Before the host waits for a stream that may stand behind a reduction.
  TRY(parts_.reason.note(kExitPeerLost, parts_.model.sink().wait()));
  TRY_ASSIGN(const parallel::StepValues values, parts_.model.scalars());
  metrics.gradient_norm = values.norm();
  TRY_ASSIGN(const std::vector<RankReport> reports,
             parts_.reason.note(kExitPeerLost,
                                parts_.world.all_gather_value(RankReport{values.loss_sum, stop})));
  double total = 0;
  for (const RankReport& report : reports) {
    total += report.loss_sum;
    outcome.stop = outcome.stop || report.stop != 0;
  }
  metrics.loss = total / static_cast<double>(options_.batch.global() * options_.context);
  if (std::isfinite(metrics.loss) && std::isfinite(metrics.gradient_norm)) return {};
  return parts_.reason.note(
      kExitNotFinite, Status(invalid("[train] step " + std::to_string(metrics.step) + ": loss " +
                                     std::to_string(metrics.loss) + ", gradient norm " +
                                     std::to_string(metrics.gradient_norm) +
                                     ": a lower learning rate or a longer warm-up may help")));
}

Result<TrainStep::Outcome> TrainStep::run(int64_t step, bool stop) {
  Outcome outcome;
  StepMetrics& metrics = outcome.metrics;
  metrics.step = step;
  metrics.learning_rate = optim::learning_rate(options_.schedule, step);
  TRY(timer_->begin());
  TRY(accumulate());
  parts_.model.update(
      {.learning_rate = metrics.learning_rate, .clip_norm = options_.clip_norm, .step = step});
  TRY(timer_->lap(StepPart::kUpdate));
  TRY(conclude(stop, outcome));
  TRY_ASSIGN(metrics.seconds, timer_->end());
  return outcome;
}

}  // namespace lockstep::train
