#include "agent/train/clicks/click_step.h"

#include <algorithm>
#include <limits>

#include "agent/model/init.h"
#include "agent/train/servers/round_plan.h"
#include "agent/train/servers/served_task.h"

namespace lockstep::train {
namespace {

// Returns the outcomes together.
Result<server::Transfer::Outcome> wait_for(std::vector<server::Transfer>& transfers) {
  server::Transfer::Outcome all{.slowest = std::numeric_limits<uint64_t>::max()};
  Status first;
  for (server::Transfer& transfer : transfers) {
    const Result<server::Transfer::Outcome> done = transfer.wait();
    if (!done.ok() && first.ok()) first = done.error();
    if (!done.ok()) continue;
    all.slowest = std::min(all.slowest, done->slowest);
    all.is_late = all.is_late || done->is_late;
  }
  if (!first.ok()) return first.error();
  return all;
}

}  // namespace

std::optional<model::ClickLayers> click_layers(const ModelSpec& model) {
  const std::vector<int64_t> hidden = click_hidden(model);
  if (hidden.empty()) return std::nullopt;
  return model::ClickLayers(kCriteoColumns, click_factors(model), hidden);
}

ClickStep::ClickStep(server::ParameterClient& servers, const ModelSpec& model, const Clock& clock)
    : servers_(servers),
      factors_(static_cast<size_t>(click_factors(model))),
      clock_(clock),
      model_(has_click_pairs(model) ? factors_ : 0),
      layers_(click_layers(model)) {
  if (!layers_) return;
  for (const model::ClickLayers::Tensor& tensor : layers_->tensors()) {
    tensors_.emplace_back(tensor.count());
  }
}

Status ClickStep::put_layers(uint64_t seed) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const model::ClickLayers::Tensor& tensor = layers_->tensors()[i];
    const uint32_t id = kFirstLayerTensor + static_cast<uint32_t>(i);
    const Parameter parameter{.id = id,
                              .name = {},
                              .dims = {tensor.outputs, tensor.inputs},
                              .init = Init::kUniform,
                              .fan_in = tensor.fan_in};
    const ArenaEntry entry{.id = id, .dims = parameter.dims, .count = parameter.count()};
    model::initialise({.parameter = parameter, .entry = entry, .shard = {}, .seed = seed}, 0,
                      tensors_[i]);
    const auto put = servers_.put({.tensor = id, .values = tensors_[i]}).wait();
    if (!put.ok()) return put.error();
  }
  return {};
}

std::vector<server::Transfer> ClickStep::begin_pull(uint64_t clock) {
  const rpc::RequestBurst together = servers_.burst();
  std::vector<server::Transfer> transfers;
  transfers.push_back(
      servers_.pull({.tensor = kBiasTensor, .clock = clock, .into = std::span(&bias_, 1)}));
  transfers.push_back(
      servers_.pull({.table = kWeightsTable, .keys = keys_, .clock = clock, .into = weights_}));
  if (factors_ > 0) {
    transfers.push_back(servers_.pull(
        {.table = kFactorsTable, .keys = keys_, .clock = clock, .into = factor_values_}));
  }
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    transfers.push_back(
        servers_.pull({.tensor = kFirstLayerTensor + i, .clock = clock, .into = tensors_[i]}));
  }
  return transfers;
}

Result<uint64_t> ClickStep::pull(uint64_t clock) {
  weights_.resize(keys_.size());
  factor_values_.resize(keys_.size() * factors_);
  std::vector<server::Transfer> transfers = begin_pull(clock);
  TRY_ASSIGN(const server::Transfer::Outcome pulled, wait_for(transfers));
  return staleness_of(pulled, clock);
}

model::ClickBatch ClickStep::batch_of(const ClickRows& rows) const {
  return {.labels = rows.labels,
          .row_begin = rows.row_begin,
          .slots = slots_,
          .values = rows.values,
          .columns = rows.columns};
}

model::ClickParameters ClickStep::parameters() const {
  return {.bias = bias_, .weights = weights_, .factors = factor_values_};
}

std::vector<std::span<const float>> ClickStep::layer_parameters() const {
  return {tensors_.begin(), tensors_.end()};
}

std::vector<server::Transfer> ClickStep::begin_push(const float& bias_gradient,
                                                    const Options& options) {
  const rpc::RequestBurst together = servers_.burst();
  std::vector<server::Transfer> transfers;
  transfers.push_back(servers_.push({.tensor = kBiasTensor,
                                     .clock = options.clock,
                                     .gradient = std::span(&bias_gradient, 1),
                                     .learning_rate = options.learning_rate}));
  transfers.push_back(servers_.push({.table = kWeightsTable,
                                     .keys = keys_,
                                     .clock = options.clock,
                                     .gradients = weight_gradients_,
                                     .learning_rate = options.learning_rate}));
  if (factors_ > 0) {
    transfers.push_back(servers_.push({.table = kFactorsTable,
                                       .keys = keys_,
                                       .clock = options.clock,
                                       .gradients = factor_gradients_,
                                       .learning_rate = options.learning_rate}));
  }
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    transfers.push_back(servers_.push({.tensor = kFirstLayerTensor + i,
                                       .clock = options.clock,
                                       .gradient = tensor_gradients_[i],
                                       .learning_rate = options.learning_rate}));
  }
  return transfers;
}

Result<ClickStep::Outcome> ClickStep::train(const ClickRows& rows, const Options& options) {
  Outcome outcome;
  TimePoint last = clock_.now();
  const auto lap = [&] {
    const TimePoint now = clock_.now();
    const double seconds = to_seconds(now - last);
    last = now;
    return seconds;
  };
  key_order_.sort(rows.keys, keys_, slots_);
  outcome.seconds_forward = lap();
  TRY_ASSIGN(outcome.staleness, pull(options.clock));
  outcome.seconds_pull = lap();
  const model::ClickBatch batch = batch_of(rows);
  logits_.resize(rows.size());
  model_.forward(batch, parameters(), logits_);
  if (layers_) layers_->forward(batch, factor_values_, layer_parameters(), logits_);
  outcome.loss_sum = model::log_loss_sum(rows.labels, logits_);
  outcome.seconds_forward += lap();
  weight_gradients_.assign(weights_.size(), 0.0f);
  factor_gradients_.assign(factor_values_.size(), 0.0f);
  model::ClickGradients gradients{.weights = weight_gradients_, .factors = factor_gradients_};
  model_.backward(batch, parameters(), logits_, options.scale, gradients);
  if (layers_) {
    tensor_gradients_.resize(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      tensor_gradients_[i].assign(tensors_[i].size(), 0.0f);
    }
    const std::vector<std::span<float>> of_layers(tensor_gradients_.begin(),
                                                  tensor_gradients_.end());
    layers_->backward(batch, layer_parameters(), logits_, options.scale, factor_gradients_,
                      of_layers);
  }
  const auto bias_gradient = static_cast<float>(gradients.bias);
  outcome.seconds_backward = lap();
  std::vector<server::Transfer> transfers = begin_push(bias_gradient, options);
  TRY_ASSIGN(const server::Transfer::Outcome pushed, wait_for(transfers));
  outcome.is_late = pushed.is_late;
  outcome.seconds_push = lap();
  return outcome;
}

Status ClickStep::predict(const ClickRows& rows, uint64_t clock, std::vector<double>& logits) {
  key_order_.sort(rows.keys, keys_, slots_);
  const Result<uint64_t> pulled = pull(clock);
  if (!pulled.ok()) return pulled.error();
  const size_t before = logits.size();
  logits.resize(before + rows.size());
  const std::span<double> added = std::span(logits).subspan(before);
  model_.forward(batch_of(rows), parameters(), added);
  if (layers_) layers_->forward(batch_of(rows), factor_values_, layer_parameters(), added);
  return {};
}

}  // namespace lockstep::train
