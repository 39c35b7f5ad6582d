#include "agent/parallel/schedule_executor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "agent/model/passes.h"

namespace lockstep::parallel {

ScheduleExecutor::ScheduleExecutor(Options options, std::vector<Chunk> chunks, const Parts& parts)
    : options_(std::move(options)),
      chunks_(std::move(chunks)),
      parts_(parts),
      laps_(parts.timer),
      batches_(std::max<size_t>(options_.data.size(), 1)),
      splits_backward_(
          std::ranges::count(options_.actions, ActionKind::kBackwardWeights, &Action::kind) > 0) {
  for (int64_t i = 0; i < std::ssize(chunks_); ++i) {
    const size_t in_flight = chunks_[static_cast<size_t>(i)].micro_batches.size();
    CHECK(peak_in_flight(options_.actions, i) == static_cast<int64_t>(in_flight));
    CHECK(in_flight <= batches_.size());
  }
}

Status ScheduleExecutor::run(BatchFeed& feed, const std::function<Status()>& update) {
  taken_ = 0;
  TRY(announce());
  for (const Action& action : options_.actions) {
    tell(action);
    parts_.timer.enter(action);
    TRY(run(action, feed, update));
  }
  return {};
}

void ScheduleExecutor::tell(const Action& action) const {
  const bool is_send =
      action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kSendGradient;
  if (options_.observe && !is_send) options_.observe(action.micro_batch);
}

Status ScheduleExecutor::announce() {
  const auto count = [&](ActionKind kind) {
    return std::ranges::count(options_.actions, kind, &Action::kind);
  };
  const int64_t values = options_.edge_count;
  if (parts_.links.activations_in != nullptr) {
    TRY(parts_.links.activations_in->announce(count(ActionKind::kReceiveActivation), values));
  }
  if (parts_.links.gradients_in == nullptr) return {};
  return parts_.links.gradients_in->announce(count(ActionKind::kReceiveGradient), values);
}

Status ScheduleExecutor::run(const Action& action, BatchFeed& feed,
                             const std::function<Status()>& update) {
  switch (action.kind) {
    case ActionKind::kTake:
      return take(action, feed);
    case ActionKind::kReceiveActivation:
      return receive_activation(action);
    case ActionKind::kForward:
      return forward(action);
    case ActionKind::kSendActivation: {
      const model::MicroBatch& batch = micro_batch(action);
      TRY(parts_.links.activations_out->send(batch.stage_output(), batch.edge_count()));
      return parts_.timer.lap(StepPart::kCommunication);
    }
    case ActionKind::kReceiveGradient:
      TRY(parts_.links.gradients_in->receive(chunk_of(action).model.stage_gradient()));
      return parts_.timer.lap(StepPart::kCommunication);
    case ActionKind::kBackward:
      return backward(action);
    case ActionKind::kSendGradient:
      TRY(parts_.links.gradients_out->send(chunk_of(action).model.stage_gradient(),
                                           micro_batch(action).edge_count()));
      return parts_.timer.lap(StepPart::kCommunication);
    case ActionKind::kBackwardWeights:
      return backward_weights(action);
    case ActionKind::kFinishReductions:
      TRY(parts_.sink.finish());
      return parts_.timer.lap(StepPart::kCommunication);
    case ActionKind::kUpdate:
      TRY(update());
      return parts_.timer.lap(StepPart::kUpdate);
  }
  return internal("[step] unknown action");
}

Status ScheduleExecutor::take(const Action& action, BatchFeed& feed) {
  CHECK(action.micro_batch == taken_++);
  TRY_ASSIGN(const std::optional<DeviceBatch> batch, feed.next());
  if (!batch) return internal("[step] expected another micro-batch, the data has ended");
  // gradient_scale takes whole micro-batches for granted.
  CHECK(batch->counted == batch->rows * options_.batch.counted);
  TRY(keep(*batch, place_of_data(action)));
  return parts_.timer.lap(StepPart::kData);
}

// The feed's own memory is valid only until the next micro-batch.
Status ScheduleExecutor::keep(const DeviceBatch& batch, size_t place) {
  batches_[place] = batch;
  if (options_.data.empty()) return {};
  auto* to = static_cast<std::byte*>(options_.data[place].data);
  for (size_t i = 0; i < options_.batch.tensors.size(); ++i) {
    const auto bytes =
        static_cast<size_t>(batch.rows * options_.batch.tensors[i].values * kTensorValueBytes);
    TRY(kernels::copy_bytes(parts_.stream, {.to = to, .from = batch.tensors[i], .bytes = bytes}));
    batches_[place].tensors[i] = to;
    to += bytes;
  }
  return {};
}

Status ScheduleExecutor::begin(const Action& action) {
  DeviceBatch& batch = batches_[place_of_data(action)];
  batch.rows = options_.samples;  // chunks in the middle take no data
  return micro_batch(action).begin(
      {.batch = batch, .gradient_scale = options_.gradient_scale, .observer = &laps_});
}

Status ScheduleExecutor::receive_activation(const Action& action) {
  TRY(begin(action));
  TRY(parts_.links.activations_in->receive(micro_batch(action).stage_input()));
  return parts_.timer.lap(StepPart::kCommunication);
}

Status ScheduleExecutor::forward(const Action& action) {
  const model::Model& model = chunk_of(action).model;
  if (model.stage().begin == 0) TRY(begin(action));
  TRY(model::forward_pass(model, parts_.store, micro_batch(action)));
  return parts_.timer.lap(StepPart::kForward);
}

Status ScheduleExecutor::backward(const Action& action) {
  if (action.completes_gradients) parts_.sink.enable_reduction();
  const auto pass = splits_backward_ ? model::backward_inputs_pass : model::backward_pass;
  TRY(pass(chunk_of(action).model, parts_.store, micro_batch(action), parts_.sink));
  TRY(laps_.status());
  parts_.scalars.add_results(parts_.ops, parts_.stream, micro_batch(action));
  return parts_.timer.lap(StepPart::kBackward);
}

Status ScheduleExecutor::backward_weights(const Action& action) {
  if (action.completes_gradients) parts_.sink.enable_reduction();
  TRY(model::backward_weights_pass(chunk_of(action).model, micro_batch(action), parts_.sink));
  return parts_.timer.lap(StepPart::kBackward);
}

}  // namespace lockstep::parallel
