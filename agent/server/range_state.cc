#include <algorithm>

#include "agent/server/unit_state.h"
#include "common/base/check.h"
#include "kernels/ops/op_table.h"

namespace lockstep::server {

StateSource source_of(std::span<const std::byte> bytes) {
  return [bytes](std::span<std::byte> to) mutable -> Status {
    if (to.size() > bytes.size()) return corrupt("[server] a saved state is too short");
    std::ranges::copy(bytes.first(to.size()), to.begin());
    bytes = bytes.subspan(to.size());
    return {};
  };
}

RangeState::RangeState(uint64_t count, const optim::OptimizerOptions& optimizer)
    : count_(count),
      optimizer_(optimizer),
      values_(count * (1 + optim::state_kinds(optimizer).size())) {}

void RangeState::read(std::span<const uint64_t>, uint64_t, std::span<float> out) {
  CHECK(out.size() == count_);
  std::copy_n(values_.begin(), count_, out.begin());
}

void RangeState::update(std::span<const Gradient> gradients, const UpdateStep& step) {
  if (!is_held_) return;
  const kernels::OpTable& ops = kernels::cpu_ops();
  const auto count = static_cast<int64_t>(count_);
  const float* sum = gradients.front().values.data();
  if (gradients.size() > 1) sum_.resize(count_);
  for (const Gradient& gradient : gradients.subspan(1)) {
    ops.add(stream_, {.a = sum, .b = gradient.values.data(), .out = sum_.data(), .count = count});
    sum = sum_.data();
  }
  kernels::UpdatedTensor tensor{.parameter = values_.data(),
                                .gradient = sum,
                                .count = count,
                                .weight_decay = static_cast<float>(optimizer_.weight_decay)};
  for (size_t k = 0; k < optim::state_kinds(optimizer_).size(); ++k) {
    tensor.states[k] = values_.data() + count_ * (k + 1);
  }
  optim::update_tensors(ops, stream_, optimizer_,
                        {.learning_rate = step.learning_rate, .step = ++updates_},
                        std::span(&tensor, 1));
}

Status RangeState::put(std::span<const float> values) {
  CHECK(values.size() == count_);
  std::ranges::copy(values, values_.begin());
  return {};
}

SavedState RangeState::saved_state() const {
  return {.count = count_, .updates = static_cast<uint64_t>(updates_), .floats = arrays()};
}

Status RangeState::save(const StateSink& sink) const {
  return sink(std::as_bytes(std::span(values_)));
}

Status RangeState::load(const SavedState& saved, const StateSource& source,
                        const StatePlace& place) {
  if (saved.floats != arrays()) {
    return corrupt("[server] expected " + std::to_string(arrays()) + " arrays of a range, got " +
                   std::to_string(saved.floats));
  }
  const uint64_t begin = std::max(place.saved_begin, place.own_begin);
  const uint64_t end = std::min(place.saved_begin + saved.count, place.own_begin + count_);
  std::vector<float> array(saved.count);
  for (uint64_t k = 0; k < arrays(); ++k) {
    TRY(source(std::as_writable_bytes(std::span(array))));
    if (begin >= end) continue;
    const auto from = array.begin() + static_cast<std::ptrdiff_t>(begin - place.saved_begin);
    std::copy_n(
        from, end - begin,
        values_.begin() + static_cast<std::ptrdiff_t>(count_ * k + begin - place.own_begin));
  }
  if (begin < end) updates_ = static_cast<int64_t>(saved.updates);
  return {};
}

Result<UnitState::Parts> RangeState::save_parts(uint32_t, const StateSink& sink) const {
  TRY(save(sink));
  return Parts{.end = kStateParts, .saved = saved_state()};
}

UnitState::Size RangeState::size() const {
  return {.bytes = (values_.capacity() + sum_.capacity()) * sizeof(float)};
}

}  // namespace lockstep::server
