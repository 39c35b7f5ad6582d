#include "tests/agent/server/history.h"

#include <cmath>
#include <cstring>

#include "kernels/ops/normal.h"
#include "kernels/ops/op_table.h"
#include "kernels/ops/rounding.h"

namespace lockstep::test {

using server::HistoryEvent;
using server::UnitKind;

server::HistoryRecorder KeptHistory::recorder() {
  return [this](const HistoryEvent& event) {
    KeptEvent kept;
    kept.event = event;
    kept.keys.assign(event.keys.begin(), event.keys.end());
    kept.values.assign(event.values.begin(), event.values.end());
    kept.workers.assign(event.workers.begin(), event.workers.end());
    for (const server::Gradient& gradient : event.gradients) {
      kept.gradients.push_back({{gradient.keys.begin(), gradient.keys.end()},
                                {gradient.values.begin(), gradient.values.end()}});
    }
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(kept));
  };
}

Replay::Replay(const server::Catalog& catalog, const server::View& view, uint64_t seed)
    : catalog_(catalog), view_(view), seed_(seed) {
  for (uint32_t i = 0; i < view.ranges.size(); ++i) {
    const server::DenseRange& range = view.ranges[i];
    const uint64_t count = range.end - range.begin;
    ranges_[i] = {.values = std::vector<float>(count), .states = std::vector<float>(2 * count)};
  }
}

// Returns the row, which begins and decays as the headers of the servers say.
Replay::Tensor& Replay::row(uint32_t table, uint64_t key) {
  const server::TableSpec& spec = catalog_.tables[table];
  const auto [at, is_new] = rows_.try_emplace({table, key});
  Tensor& tensor = at->second;
  if (!is_new) return tensor;
  tensor.values.resize(spec.dim);
  tensor.states.resize(2 * spec.dim);
  if (spec.deviation > 0) {
    kernels::fill_normal({.out = tensor.values.data(),
                          .count = spec.dim,
                          .seed = seed_ ^ kernels::mixed_bits(table),
                          .stream = key,
                          .deviation = spec.deviation});
  }
  return tensor;
}

void Replay::apply(Tensor& tensor, const std::vector<float>& gradient,
                   const optim::OptimizerOptions& optimizer, double learning_rate) {
  kernels::UpdatedTensor updated{
      .parameter = tensor.values.data(),
      .gradient = gradient.data(),
      .states = {tensor.states.data(), tensor.states.data() + tensor.values.size()},
      .count = static_cast<int64_t>(tensor.values.size()),
      .weight_decay = static_cast<float>(optimizer.weight_decay)};
  if (optim::state_kinds(optimizer).empty()) updated.states[0] = nullptr;
  kernels::Stream stream;
  optim::update_tensors(kernels::cpu_ops(), stream, optimizer,
                        {.learning_rate = learning_rate, .step = ++tensor.updates}, {&updated, 1});
}

namespace {

float decay_of(const server::TableSpec& spec, int64_t updates, uint64_t then, uint64_t now) {
  if (spec.life.decay == 0 || updates == 0) return 1.0f;
  const uint64_t clocks = now > then ? now - then : 0;
  return static_cast<float>(std::pow(1.0 - spec.life.decay, static_cast<uint32_t>(clocks)));
}

void add(std::vector<float>& sum, const float* values, size_t count) {
  if (sum.empty()) {
    sum.assign(values, values + count);
    return;
  }
  for (size_t i = 0; i < count; ++i) sum[i] += values[i];
}

}  // namespace

void Replay::update(const KeptEvent& kept) {
  const HistoryEvent& event = kept.event;
  if (event.unit.kind == UnitKind::kRange) {
    std::vector<float> sum;
    for (const KeptEvent::Gradient& gradient : kept.gradients) {
      add(sum, gradient.values.data(), gradient.values.size());
    }
    const auto& optimizer = catalog_.tensors[view_.ranges[event.unit.index].tensor].optimizer;
    return apply(ranges_.at(event.unit.index), sum, optimizer, event.learning_rate);
  }
  const server::TableSpec& spec = catalog_.tables[event.unit.index];
  std::map<uint64_t, std::vector<float>> sums;
  for (const KeptEvent::Gradient& gradient : kept.gradients) {
    for (size_t i = 0; i < gradient.keys.size(); ++i) {
      add(sums[gradient.keys[i]], gradient.values.data() + i * spec.dim, spec.dim);
    }
  }
  for (const auto& [key, sum] : sums) {
    Tensor& tensor = row(event.unit.index, key);
    const float factor = decay_of(spec, tensor.updates, tensor.updated_at, event.now);
    for (float& value : tensor.values) value *= factor;
    tensor.updated_at = std::max(tensor.updated_at, event.now);
    apply(tensor, sum, spec.optimizer, event.learning_rate);
  }
}

std::vector<float> Replay::pulled(const KeptEvent& kept) {
  const HistoryEvent& event = kept.event;
  if (event.unit.kind == UnitKind::kRange) return ranges_.at(event.unit.index).values;
  std::vector<float> values;
  for (const uint64_t key : kept.keys) {
    const Tensor& tensor = row(event.unit.index, key);
    const float factor =
        decay_of(catalog_.tables[event.unit.index], tensor.updates, tensor.updated_at, event.now);
    for (const float value : tensor.values) values.push_back(value * factor);
  }
  return values;
}

Replay::Outcome Replay::run(const std::vector<KeptEvent>& events) {
  Outcome outcome;
  for (size_t i = 0; i < events.size(); ++i) {
    const KeptEvent& kept = events[i];
    switch (kept.event.kind) {
      case HistoryEvent::Kind::kPut:
        ranges_.at(kept.event.unit.index).values = kept.values;
        break;
      case HistoryEvent::Kind::kUpdate:
        update(kept);
        ++outcome.updates;
        break;
      case HistoryEvent::Kind::kExpiry:
        for (const uint64_t key : kept.keys) rows_.erase({kept.event.unit.index, key});
        outcome.expiries += kept.keys.size();
        break;
      case HistoryEvent::Kind::kOther:
        break;
      case HistoryEvent::Kind::kPull: {
        const std::vector<float> expected = pulled(kept);
        ++outcome.pulls;
        const bool is_same =
            expected.size() == kept.values.size() &&
            std::memcmp(expected.data(), kept.values.data(), expected.size() * sizeof(float)) == 0;
        if (!is_same && outcome.mismatch.empty()) {
          outcome.mismatch = "event " + std::to_string(i) + ", a pull of rank " +
                             std::to_string(kept.event.worker) + " with clock " +
                             std::to_string(kept.event.clock);
        }
        break;
      }
    }
  }
  return outcome;
}

}  // namespace lockstep::test
