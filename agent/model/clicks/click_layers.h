#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agent/model/clicks/click_model.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::model {

// The hidden layers of a click model. Their input is a row's embeddings side by side, one of
// `factors` numbers for each column of the log:
//   h_0[c factors + f] = sum of v_if x_i over the features i of column c
//   h_l = relu(W_l h_(l-1) + b_l),   z = ... + w h_L
// They are added to the logits of a ClickModel without factors (wide and deep) or with the same
// ones (DeepFM). Products are in fp32. Sources: Cheng et al., "Wide & deep learning for recommender
// systems", DLRS 2016; Guo et al., "DeepFM", IJCAI 2017.
class ClickLayers {
 public:
  // A tensor of the layers: W_1, b_1, W_2, ... and w, which is [1, inputs] and has no bias.
  struct Tensor {
    int64_t outputs = 0;
    int64_t inputs = 0;  // 1: a bias
    int64_t fan_in = 0;  // inputs of its layer

    size_t count() const { return static_cast<size_t>(outputs * inputs); }
  };

  // `hidden` has at least one width.
  ClickLayers(int64_t columns, int64_t factors, std::span<const int64_t> hidden);

  const std::vector<Tensor>& tensors() const { return tensors_; }

  // Adds to z of each row. The batch has columns; factors are [keys, factors], parameters in the
  // order of tensors().
  void forward(const ClickBatch& batch, std::span<const float> factors,
               std::span<const std::span<const float>> parameters, std::span<double> logits);
  // Adds scale times the gradient of the summed log loss to those of the factors and the tensors.
  // `logits` are the whole model's, and forward() was called last with the same batch.
  void backward(const ClickBatch& batch, std::span<const std::span<const float>> parameters,
                std::span<const double> logits, double scale, std::span<float> factor_gradients,
                std::span<const std::span<float>> gradients);

 private:
  int64_t layers() const { return static_cast<int64_t>(tensors_.size() + 1) / 2; }
  kernels::Workspace workspace(size_t bytes);

  int64_t columns_;
  int64_t factors_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<float>> values_;  // h_0 to h_L, then the output
  std::vector<std::vector<float>> deltas_;  // their gradients
  std::vector<float> workspace_;
  kernels::Stream stream_;
};

}  // namespace lockstep::model
