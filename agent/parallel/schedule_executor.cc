#include "agent/parallel/schedule_executor.h"

#include <optional>
#include <string>
#include <utility>

#include "agent/model/passes.h"

namespace lockstep::parallel {
namespace {

bool has_transport(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    if (action.peer >= 0) return true;
  }
  return false;
}

}  // namespace

ScheduleExecutor::ScheduleExecutor(Options options, std::unique_ptr<model::MicroBatch> micro_batch,
                                   const Parts& parts)
    : options_(std::move(options)),
      micro_batch_(std::move(micro_batch)),
      parts_(parts),
      laps_(parts.timer) {
  CHECK(peak_in_flight(options_.actions) == 1 && !has_transport(options_.actions));
}

Status ScheduleExecutor::run(BatchFeed& feed, const std::function<Status()>& update) {
  taken_ = 0;
  for (const Action& action : options_.actions) TRY(run(action, feed, update));
  return {};
}

Status ScheduleExecutor::run(const Action& action, BatchFeed& feed,
                             const std::function<Status()>& update) {
  switch (action.kind) {
    case ActionKind::kTake:
      return take(action, feed);
    case ActionKind::kForward:
      return forward();
    case ActionKind::kBackward:
      return backward(action);
    case ActionKind::kFinishReductions:
      TRY(parts_.sink.finish());
      return parts_.timer.lap(StepPart::kCommunication);
    case ActionKind::kUpdate:
      TRY(update());
      return parts_.timer.lap(StepPart::kUpdate);
    case ActionKind::kReceiveActivation:
    case ActionKind::kSendActivation:
    case ActionKind::kReceiveGradient:
    case ActionKind::kSendGradient:
      break;
  }
  return internal("[step] " + std::string(action_name(action.kind)) + " on a single stage");
}

Status ScheduleExecutor::take(const Action& action, BatchFeed& feed) {
  CHECK(action.micro_batch == taken_++);
  TRY_ASSIGN(const std::optional<DeviceBatch> batch, feed.next());
  if (!batch) return internal("[step] expected another micro-batch, the data has ended");
  batch_ = *batch;
  // gradient_scale takes whole micro-batches for granted.
  CHECK(batch_.counted == batch_.rows * options_.counted);
  return parts_.timer.lap(StepPart::kData);
}

Status ScheduleExecutor::forward() {
  TRY(micro_batch_->begin(
      {.batch = batch_, .gradient_scale = options_.gradient_scale, .observer = &laps_}));
  TRY(model::forward_pass(parts_.model, parts_.store, *micro_batch_));
  return parts_.timer.lap(StepPart::kForward);
}

Status ScheduleExecutor::backward(const Action& action) {
  if (action.completes_gradients) parts_.sink.enable_reduction();
  TRY(model::backward_pass(parts_.model, parts_.store, *micro_batch_, parts_.sink));
  TRY(laps_.status());
  parts_.scalars.add_results(parts_.ops, parts_.stream, *micro_batch_);
  return parts_.timer.lap(StepPart::kBackward);
}

}  // namespace lockstep::parallel
