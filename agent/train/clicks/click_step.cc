#include "agent/train/clicks/click_step.h"

#include <algorithm>
#include <limits>

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

ClickStep::ClickStep(server::ParameterClient& servers, int64_t factors, const Clock& clock)
    : servers_(servers),
      factors_(static_cast<size_t>(factors)),
      clock_(clock),
      model_(static_cast<size_t>(factors)) {}

void ClickStep::find_slots(const ClickRows& rows) {
  order_.clear();
  for (uint32_t at = 0; at < rows.keys.size(); ++at) order_.emplace_back(rows.keys[at], at);
  std::ranges::sort(order_);
  keys_.clear();
  slots_.resize(rows.keys.size());
  for (const auto& [key, at] : order_) {
    if (keys_.empty() || keys_.back() != key) keys_.push_back(key);
    slots_[at] = static_cast<uint32_t>(keys_.size() - 1);
  }
}

Result<uint64_t> ClickStep::pull(uint64_t clock) {
  weights_.resize(keys_.size());
  factor_values_.resize(keys_.size() * factors_);
  std::vector<server::Transfer> transfers;
  transfers.push_back(
      servers_.pull({.tensor = kBiasTensor, .clock = clock, .into = std::span(&bias_, 1)}));
  transfers.push_back(
      servers_.pull({.table = kWeightsTable, .keys = keys_, .clock = clock, .into = weights_}));
  if (factors_ > 0) {
    transfers.push_back(servers_.pull(
        {.table = kFactorsTable, .keys = keys_, .clock = clock, .into = factor_values_}));
  }
  TRY_ASSIGN(const server::Transfer::Outcome pulled, wait_for(transfers));
  return staleness_of(pulled, clock);
}

model::ClickBatch ClickStep::batch_of(const ClickRows& rows) const {
  return {
      .labels = rows.labels, .row_begin = rows.row_begin, .slots = slots_, .values = rows.values};
}

model::ClickParameters ClickStep::parameters() const {
  return {.bias = bias_, .weights = weights_, .factors = factor_values_};
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
  find_slots(rows);
  outcome.seconds_forward = lap();
  TRY_ASSIGN(outcome.staleness, pull(options.clock));
  outcome.seconds_pull = lap();
  const model::ClickBatch batch = batch_of(rows);
  logits_.resize(rows.size());
  model_.forward(batch, parameters(), logits_);
  outcome.loss_sum = model::log_loss_sum(rows.labels, logits_);
  outcome.seconds_forward += lap();
  weight_gradients_.assign(weights_.size(), 0.0f);
  factor_gradients_.assign(factor_values_.size(), 0.0f);
  model::ClickGradients gradients{.weights = weight_gradients_, .factors = factor_gradients_};
  model_.backward(batch, parameters(), logits_, options.scale, gradients);
  const auto bias_gradient = static_cast<float>(gradients.bias);
  outcome.seconds_backward = lap();
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
  TRY_ASSIGN(const server::Transfer::Outcome pushed, wait_for(transfers));
  outcome.is_late = pushed.is_late;
  outcome.seconds_push = lap();
  return outcome;
}

Status ClickStep::predict(const ClickRows& rows, uint64_t clock, std::vector<double>& logits) {
  find_slots(rows);
  const Result<uint64_t> pulled = pull(clock);
  if (!pulled.ok()) return pulled.error();
  const size_t before = logits.size();
  logits.resize(before + rows.size());
  model_.forward(batch_of(rows), parameters(), std::span(logits).subspan(before));
  return {};
}

}  // namespace lockstep::train
