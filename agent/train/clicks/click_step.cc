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

ClickStep::ClickStep(server::ParameterClient& servers, const ModelSpec& model,
                     const server::Encodings& encodings, const Clock& clock)
    : servers_(servers),
      factors_(static_cast<size_t>(click_factors(model))),
      encodings_(encodings),
      clock_(clock),
      model_(has_click_pairs(model) ? factors_ : 0),
      layers_(click_layers(model)) {
  if (!layers_) return;
  for (const model::ClickLayers::Tensor& tensor : layers_->tensors()) {
    now_->tensors.emplace_back(tensor.count());
    next_->tensors.emplace_back(tensor.count());
    tensor_gradients_.emplace_back(tensor.count());
  }
}

Status ClickStep::put_layers(uint64_t seed) {
  for (size_t i = 0; i < now_->tensors.size(); ++i) {
    const model::ClickLayers::Tensor& tensor = layers_->tensors()[i];
    const uint32_t id = kFirstLayerTensor + static_cast<uint32_t>(i);
    const Parameter parameter{.id = id,
                              .name = {},
                              .dims = {tensor.outputs, tensor.inputs},
                              .init = Init::kUniform,
                              .fan_in = tensor.fan_in};
    const ArenaEntry entry{.id = id, .dims = parameter.dims, .count = parameter.count()};
    std::vector<float>& values = now_->tensors[i];
    model::initialise({.parameter = parameter, .entry = entry, .shard = {}, .seed = seed}, 0,
                      values);
    const auto put = servers_.put({.tensor = id, .values = values}).wait();
    if (!put.ok()) return put.error();
  }
  return {};
}

void ClickStep::begin_pull(const ClickRows& rows, uint64_t clock, Parameters& parameters) {
  parameters.pulls.clear();
  key_order_.sort(rows.keys, parameters.keys, parameters.slots);
  parameters.weights.resize(parameters.keys.size());
  parameters.factors.resize(parameters.keys.size() * factors_);
  const rpc::RequestBurst together = servers_.burst();
  const auto pull_tensor = [&](uint32_t tensor, std::span<float> into) {
    parameters.pulls.push_back(servers_.pull(
        {.tensor = tensor, .clock = clock, .into = into, .encoding = encodings_.pull}));
  };
  const auto pull_rows = [&](uint32_t table, std::span<float> into) {
    parameters.pulls.push_back(servers_.pull({.table = table,
                                              .keys = parameters.keys,
                                              .clock = clock,
                                              .into = into,
                                              .encoding = encodings_.pull}));
  };
  pull_tensor(kBiasTensor, std::span(&parameters.bias, 1));
  pull_rows(kWeightsTable, parameters.weights);
  if (factors_ > 0) pull_rows(kFactorsTable, parameters.factors);
  for (uint32_t i = 0; i < parameters.tensors.size(); ++i) {
    pull_tensor(kFirstLayerTensor + i, parameters.tensors[i]);
  }
}

Result<uint64_t> ClickStep::finish_pull(uint64_t clock, Parameters& parameters) {
  TRY_ASSIGN(const server::Transfer::Outcome pulled, wait_for(parameters.pulls));
  return staleness_of(pulled, clock);
}

Status ClickStep::begin_next(const ReadNext& read_next, uint64_t clock) {
  if (!read_next) return {};
  TRY_ASSIGN(const ClickRows* const rows, read_next());
  if (rows == nullptr) return {};
  begin_pull(*rows, clock, *next_);
  next_clock_ = clock;
  return {};
}

model::ClickBatch ClickStep::batch_of(const ClickRows& rows) const {
  return {.labels = rows.labels,
          .row_begin = rows.row_begin,
          .slots = now_->slots,
          .values = rows.values,
          .columns = rows.columns};
}

model::ClickParameters ClickStep::parameters() const {
  return {.bias = now_->bias, .weights = now_->weights, .factors = now_->factors};
}

std::vector<std::span<const float>> ClickStep::layer_parameters() const {
  return {now_->tensors.begin(), now_->tensors.end()};
}

void ClickStep::forward(const ClickRows& rows, std::span<double> logits) {
  const model::ClickBatch batch = batch_of(rows);
  model_.forward(batch, parameters(), logits);
  if (layers_) layers_->forward(batch, now_->factors, layer_parameters(), logits);
}

float ClickStep::backward(const ClickRows& rows, double scale) {
  const model::ClickBatch batch = batch_of(rows);
  weight_gradients_.assign(now_->weights.size(), 0.0f);
  factor_gradients_.assign(now_->factors.size(), 0.0f);
  model::ClickGradients gradients{.weights = weight_gradients_, .factors = factor_gradients_};
  model_.backward(batch, parameters(), logits_, scale, gradients);
  if (layers_) {
    for (std::vector<float>& gradient : tensor_gradients_) std::ranges::fill(gradient, 0.0f);
    const std::vector<std::span<float>> of_layers(tensor_gradients_.begin(),
                                                  tensor_gradients_.end());
    layers_->backward(batch, layer_parameters(), logits_, scale, factor_gradients_, of_layers);
  }
  return static_cast<float>(gradients.bias);
}

std::vector<server::Transfer> ClickStep::begin_push(const float& bias_gradient,
                                                    const Options& options) {
  const rpc::RequestBurst together = servers_.burst();
  std::vector<server::Transfer> transfers;
  const auto push_tensor = [&](uint32_t tensor, std::span<const float> gradient) {
    transfers.push_back(servers_.push({.tensor = tensor,
                                       .clock = options.clock,
                                       .gradient = gradient,
                                       .learning_rate = options.learning_rate,
                                       .encoding = encodings_.push}));
  };
  const auto push_rows = [&](uint32_t table, std::span<const float> gradients) {
    transfers.push_back(servers_.push({.table = table,
                                       .keys = now_->keys,
                                       .clock = options.clock,
                                       .gradients = gradients,
                                       .learning_rate = options.learning_rate,
                                       .encoding = encodings_.push,
                                       .threshold = encodings_.push_threshold}));
  };
  push_tensor(kBiasTensor, std::span(&bias_gradient, 1));
  push_rows(kWeightsTable, weight_gradients_);
  if (factors_ > 0) push_rows(kFactorsTable, factor_gradients_);
  for (uint32_t i = 0; i < tensor_gradients_.size(); ++i) {
    push_tensor(kFirstLayerTensor + i, tensor_gradients_[i]);
  }
  return transfers;
}

Result<ClickStep::Outcome> ClickStep::train(const ClickRows& rows, const Options& options,
                                            const ReadNext& read_next) {
  Outcome outcome;
  TimePoint last = clock_.now();
  const auto lap = [&] {
    const TimePoint now = clock_.now();
    const double seconds = to_seconds(now - last);
    last = now;
    return seconds;
  };
  if (next_clock_ == options.clock) {
    std::swap(now_, next_);
  } else {
    begin_pull(rows, options.clock, *now_);
  }
  next_clock_.reset();
  outcome.seconds_forward = lap();
  TRY_ASSIGN(outcome.staleness, finish_pull(options.clock, *now_));
  outcome.seconds_pull = lap();
  logits_.resize(rows.size());
  forward(rows, logits_);
  outcome.loss_sum = model::log_loss_sum(rows.labels, logits_);
  outcome.seconds_forward += lap();
  const float bias_gradient = backward(rows, options.scale);
  outcome.seconds_backward = lap();
  std::vector<server::Transfer> pushes = begin_push(bias_gradient, options);
  outcome.seconds_push = lap();
  const Status next = begin_next(read_next, options.clock + 1);
  outcome.seconds_next = lap();
  TRY_ASSIGN(const server::Transfer::Outcome pushed, wait_for(pushes));
  TRY(next);
  outcome.is_late = pushed.is_late;
  outcome.seconds_push += lap();
  return outcome;
}

Status ClickStep::predict(const ClickRows& rows, uint64_t clock, std::vector<double>& logits) {
  begin_pull(rows, clock, *now_);
  const Result<uint64_t> pulled = finish_pull(clock, *now_);
  if (!pulled.ok()) return pulled.error();
  const size_t before = logits.size();
  logits.resize(before + rows.size());
  forward(rows, std::span(logits).subspan(before));
  return {};
}

}  // namespace lockstep::train
