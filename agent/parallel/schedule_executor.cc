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
      batches_(std::max<size_t>(options_.data.size(), 1)) {
  for (const Chunk& chunk : chunks_) CHECK(chunk.micro_batches.size() <= batches_.size());
}

Status ScheduleExecutor::run(int64_t step, const std::vector<Action>& actions, BatchFeed& feed,
                             const std::function<Status()>& update) {
  step_ = step;
  const auto taken = std::ranges::find(actions, ActionKind::kTake, &Action::kind);
  if (taken != actions.end()) next_taken_ = turn_of(*taken);
  for (const Action& action : actions) {
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

Status ScheduleExecutor::announce(const std::vector<Action>& actions) {
  std::vector<int64_t> activations, gradients;
  for (const Action& action : actions) {
    const Chunk::Edges& edges = chunk_of(action).edges;
    if (action.kind == ActionKind::kReceiveActivation) activations.push_back(edges.input);
    if (action.kind == ActionKind::kReceiveGradient) gradients.push_back(edges.output);
  }
  if (parts_.links.activations_in != nullptr) {
    TRY(parts_.links.activations_in->announce(std::move(activations)));
  }
  if (parts_.links.gradients_in == nullptr) return {};
  return parts_.links.gradients_in->announce(std::move(gradients));
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
    case ActionKind::kSendActivation:
      TRY(parts_.links.activations_out->send(micro_batch(action).stage_output(),
                                             chunk_of(action).edges.output));
      return parts_.timer.lap(StepPart::kCommunication);
    case ActionKind::kReceiveGradient:
      TRY(parts_.links.gradients_in->receive(micro_batch(action).output_gradient()));
      return parts_.timer.lap(StepPart::kCommunication);
    case ActionKind::kBackward:
      return backward(action);
    case ActionKind::kSendGradient:
      TRY(parts_.links.gradients_out->send(micro_batch(action).input_gradient(),
                                           chunk_of(action).edges.input));
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
  CHECK(turn_of(action) == next_taken_++);
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

int64_t ScheduleExecutor::first_sample(const Action& action) const {
  if (options_.first_samples.empty()) return 0;
  const int64_t step = action.step < 0 ? step_ : action.step;
  return (step - 1) * options_.step_samples +
         options_.first_samples[static_cast<size_t>(action.micro_batch)];
}

Status ScheduleExecutor::begin(const Action& action) {
  DeviceBatch& batch = batches_[place_of_data(action)];
  // Chunks in the middle take no data.
  batch.rows = options_.samples[static_cast<size_t>(action.micro_batch)];
  return micro_batch(action).begin({.batch = batch,
                                    .gradient_scale = options_.gradient_scale,
                                    .version = action.version,
                                    .observer = &laps_,
                                    .first_sample = first_sample(action)});
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
  const model::Model& model = chunk_of(action).model;
  TRY(options_.splits_backward
          ? model::backward_inputs_pass(model, parts_.store, micro_batch(action), parts_.sink)
          : model::backward_pass(model, parts_.store, micro_batch(action), parts_.sink,
                                 action.version));
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
