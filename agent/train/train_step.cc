#include "agent/train/train_step.h"

#include <cmath>
#include <utility>

#include "agent/model/passes.h"
#include "common/api/worker_config.h"

namespace lockstep {
namespace {

// What a rank tells the others in every step.
struct RankReport {
  double loss_sum = 0;
  int64_t stop = 0;
};

}  // namespace

Result<TrainStep> TrainStep::create(const TrainStepOptions& options, const Parts& parts) {
  TRY_ASSIGN(MicroBatch micro,
             parts.model.model().make_micro_batch({options.batch.micro, options.context}));
  return TrainStep(options, parts, std::move(micro));
}

double TrainStep::lap() {
  const TimePoint now = parts_.clock.now();
  return to_seconds(now - std::exchange(mark_, now));
}

// The micro-batches of this rank; the sum of the losses of its tokens.
Result<double> TrainStep::accumulate(StepSeconds& seconds) {
  Composition& model = parts_.model;
  const auto tokens = static_cast<double>(options_.batch.global() * options_.context);
  double loss = 0;
  model.sink().begin_step(model.ops(), model.stream());
  for (int64_t index = 0; index < options_.batch.accumulation; ++index) {
    TRY_ASSIGN(const TokenBatch* batch, parts_.reason.note(kExitDataError, parts_.loader.next()));
    seconds.data += lap();
    TRY(model.model().begin(micro_, {.tokens = batch->tokens.data(),
                                     .targets = batch->targets.data(),
                                     .batch = batch->rows,
                                     .sequence = options_.context,
                                     .gradient_scale = static_cast<float>(1.0 / tokens)}));
    TRY(forward_pass(model.model(), model.store(), micro_));
    seconds.forward += lap();
    if (index + 1 == options_.batch.accumulation) model.sink().send_from_now_on();
    TRY(parts_.reason.note(kExitPeerLost,
                           backward_pass(model.model(), model.store(), micro_, model.sink())));
    TRY_ASSIGN(const double sum, loss_sum(model.model(), micro_));
    loss += sum;
    seconds.backward += lap();
  }
  return loss;
}

Status TrainStep::reduce(double loss_sum, bool stop, Outcome& outcome) {
  ExitReason& reason = parts_.reason;
  TRY(reason.note(kExitPeerLost, parts_.model.sink().finish()));
  TRY_ASSIGN(const std::vector<RankReport> reports,
             reason.note(kExitPeerLost, parts_.world.all_gather_value(RankReport{loss_sum, stop})));
  double total = 0;
  for (const RankReport& report : reports) {
    total += report.loss_sum;
    outcome.stop = outcome.stop || report.stop != 0;
  }
  outcome.metrics.loss = total / static_cast<double>(options_.batch.global() * options_.context);
  return {};
}

Status TrainStep::update(Outcome& outcome) {
  StepMetrics& metrics = outcome.metrics;
  TRY_ASSIGN(metrics.gradient_norm, parts_.model.gradient_norm());
  if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.gradient_norm)) {
    return parts_.reason.note(
        kExitNotFinite, Status(invalid("[train] step " + std::to_string(metrics.step) + ": loss " +
                                       std::to_string(metrics.loss) + ", gradient norm " +
                                       std::to_string(metrics.gradient_norm) +
                                       ": a lower learning rate or a longer warm-up may help")));
  }
  metrics.learning_rate = learning_rate(options_.schedule, metrics.step);
  parts_.model.update({.learning_rate = metrics.learning_rate,
                       .gradient_scale = clip_scale(metrics.gradient_norm, options_.clip_norm),
                       .step = metrics.step});
  return parts_.model.stream().synchronize();
}

Result<TrainStep::Outcome> TrainStep::run(int64_t step, bool stop) {
  Outcome outcome;
  outcome.metrics.step = step;
  StepSeconds& seconds = outcome.metrics.seconds;
  const TimePoint begin = mark_ = parts_.clock.now();
  TRY_ASSIGN(const double loss, accumulate(seconds));
  TRY(reduce(loss, stop, outcome));
  seconds.communication = lap();
  TRY(update(outcome));
  seconds.update = lap();
  seconds.total = to_seconds(mark_ - begin);
  return outcome;
}

}  // namespace lockstep
