#include "agent/model/clicks/click_layers.h"

#include <algorithm>

#include "common/base/check.h"

namespace lockstep::model {
namespace {

// The memory of a matrix product begins at a multiple of these bytes.
constexpr size_t kAlignment = 64;

int64_t rows_of(const ClickBatch& batch) {
  return static_cast<int64_t>(batch.labels.size());
}

}  // namespace

ClickLayers::ClickLayers(int64_t columns, int64_t factors, std::span<const int64_t> hidden)
    : columns_(columns), factors_(factors) {
  CHECK(!hidden.empty());
  int64_t inputs = columns * factors;
  for (const int64_t width : hidden) {
    tensors_.push_back({.outputs = width, .inputs = inputs, .fan_in = inputs});
    tensors_.push_back({.outputs = width, .inputs = 1, .fan_in = inputs});
    inputs = width;
  }
  tensors_.push_back({.outputs = 1, .inputs = inputs, .fan_in = inputs});
  values_.resize(static_cast<size_t>(layers()) + 1);
  deltas_.resize(values_.size());
}

kernels::Workspace ClickLayers::workspace(size_t bytes) {
  workspace_.resize(std::max(workspace_.size(), (bytes + kAlignment) / sizeof(float) + 1));
  const auto begin = reinterpret_cast<uintptr_t>(workspace_.data());
  const uintptr_t aligned = (begin + kAlignment - 1) / kAlignment * kAlignment;
  return {reinterpret_cast<void*>(aligned), bytes};
}

void ClickLayers::forward(const ClickBatch& batch, std::span<const float> factors,
                          std::span<const std::span<const float>> parameters,
                          std::span<double> logits) {
  CHECK(parameters.size() == tensors_.size() && batch.columns.size() == batch.slots.size());
  const int64_t rows = rows_of(batch);
  if (rows == 0) return;
  const int64_t inputs = columns_ * factors_;
  values_[0].assign(static_cast<size_t>(rows * inputs), 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<size_t>(row);
    for (uint32_t i = batch.row_begin[at]; i < batch.row_begin[at + 1]; ++i) {
      float* to = values_[0].data() + row * inputs + batch.columns[i] * factors_;
      const float* from = factors.data() + batch.slots[i] * factors_;
      for (int64_t f = 0; f < factors_; ++f) to[f] += from[f] * batch.values[i];
    }
  }
  const kernels::OpTable& ops = kernels::cpu_ops();
  for (int64_t layer = 0; layer < layers(); ++layer) {
    const auto at = static_cast<size_t>(layer);
    const Tensor& weight = tensors_[2 * at];
    const bool is_last = layer + 1 == layers();
    std::vector<float>& out = values_[at + 1];
    out.resize(static_cast<size_t>(rows * weight.outputs));
    const kernels::MatmulShape shape{rows, weight.outputs, weight.inputs};
    ops.matmul_forward(
        stream_,
        {.x = kernels::ConstView(values_[at].data()),
         .weight = kernels::ConstView(parameters[2 * at].data()),
         .bias = is_last ? kernels::ConstView() : kernels::ConstView(parameters[2 * at + 1].data()),
         .y = kernels::View(out.data()),
         .m = shape.m,
         .n = shape.n,
         .k = shape.k,
         .workspace = workspace(kernels::matmul_forward_workspace(shape, kernels::Precision::kF32,
                                                                  kernels::DeviceType::kCpu))});
    if (is_last) break;
    ops.pointwise_forward(stream_, {.x = kernels::ConstView(out.data()),
                                    .y = kernels::View(out.data()),
                                    .count = shape.m * shape.n,
                                    .function = kernels::Pointwise::kRelu});
  }
  for (size_t row = 0; row < logits.size(); ++row) logits[row] += values_.back()[row];
}

void ClickLayers::backward(const ClickBatch& batch,
                           std::span<const std::span<const float>> parameters,
                           std::span<const double> logits, double scale,
                           std::span<float> factor_gradients,
                           std::span<const std::span<float>> gradients) {
  const int64_t rows = rows_of(batch);
  if (rows == 0) return;
  deltas_.back().resize(static_cast<size_t>(rows));
  for (size_t row = 0; row < logits.size(); ++row) {
    deltas_.back()[row] =
        static_cast<float>(scale * (probability_of(logits[row]) - batch.labels[row]));
  }
  const kernels::OpTable& ops = kernels::cpu_ops();
  for (int64_t layer = layers() - 1; layer >= 0; --layer) {
    const auto at = static_cast<size_t>(layer);
    const Tensor& weight = tensors_[2 * at];
    const bool is_last = layer + 1 == layers();
    if (!is_last) {
      ops.pointwise_backward(stream_, {.y = kernels::ConstView(values_[at + 1].data()),
                                       .dy = kernels::ConstView(deltas_[at + 1].data()),
                                       .dx = kernels::View(deltas_[at + 1].data()),
                                       .count = rows * weight.outputs,
                                       .function = kernels::Pointwise::kRelu});
    }
    deltas_[at].resize(static_cast<size_t>(rows * weight.inputs));
    const kernels::MatmulShape shape{rows, weight.outputs, weight.inputs};
    ops.matmul_backward(
        stream_, {.dy = kernels::ConstView(deltas_[at + 1].data()),
                  .x = kernels::ConstView(values_[at].data()),
                  .weight = kernels::ConstView(parameters[2 * at].data()),
                  .dx = kernels::View(deltas_[at].data()),
                  .dweight = kernels::View(gradients[2 * at].data()),
                  .dbias = is_last ? kernels::View() : kernels::View(gradients[2 * at + 1].data()),
                  .m = shape.m,
                  .n = shape.n,
                  .k = shape.k,
                  .workspace = workspace(kernels::matmul_backward_workspace(
                      shape, kernels::Precision::kF32, kernels::DeviceType::kCpu))});
  }
  const int64_t inputs = columns_ * factors_;
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<size_t>(row);
    for (uint32_t i = batch.row_begin[at]; i < batch.row_begin[at + 1]; ++i) {
      const float* from = deltas_[0].data() + row * inputs + batch.columns[i] * factors_;
      float* to = factor_gradients.data() + batch.slots[i] * factors_;
      for (int64_t f = 0; f < factors_; ++f) to[f] += from[f] * batch.values[i];
    }
  }
}

}  // namespace lockstep::model
