#include "agent/train/train_step.h"

namespace lockstep::train {

Result<optim::LearningRateSchedule> schedule_of(const TrainSpec& train) {
  const OptimizerSpec& optimizer = train.optimizer;
  TRY_ASSIGN(const optim::ScheduleKind kind, optim::parse_schedule(optimizer.schedule));
  return optim::LearningRateSchedule{.kind = kind,
                                     .peak = optimizer.learningRate,
                                     .minimum = optimizer.minimumLearningRate,
                                     .warmup_steps = optimizer.warmupSteps,
                                     .steps = train.steps,
                                     .decay_steps = optimizer.decaySteps,
                                     .milestones = optimizer.milestones,
                                     .factor = optimizer.factor};
}

Result<TrainStep> TrainStep::create(const TrainStepOptions& options, const Parts& parts) {
  TRY_ASSIGN(std::unique_ptr<DeviceFeed> feed,
             DeviceFeed::create(parts.loader, parts.model.stream(),
                                {parts.model.batch_memory(parallel::kTrainingSlots[0]),
                                 parts.model.batch_memory(parallel::kTrainingSlots[1])}));
  return TrainStep(options, parts, std::move(feed));
}

Result<TrainStep::Outcome> TrainStep::run(const Request& request) {
  const double rate = optim::learning_rate(options_.schedule, request.step);
  TRY_ASSIGN(parallel::StepReport report,
             parts_.model.run_step(*feed_, {.step = request.step,
                                            .first_update = request.first_update,
                                            .learning_rate = rate,
                                            .flush = request.flush,
                                            .clip_norm = options_.clip_norm,
                                            .stop = request.mine.stop,
                                            .busy = request.mine.busy,
                                            .timeline = request.timeline,
                                            .before_update = request.before_update}));
  report.numbers.step = request.step;
  report.numbers.learning_rate = rate;
  return Outcome{report.numbers, {.stop = report.stop, .busy = report.busy}, report.known_step};
}

}  // namespace lockstep::train
