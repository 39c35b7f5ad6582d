#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/activations.h"
#include "common/layout/mlp_config.h"
#include "common/layout/model_config.h"

namespace lockstep::model {

// Byte offsets of the tensors of an MLP's stage in the arena of one micro-batch and in the scratch
// that all share; -1: not kept. Legend: R samples, I inputs, H_l the width of hidden layer l, O
// outputs. Elements have value_bytes, except those marked fp32.
struct MlpLayout {
  // [R,H_l] the stage's input. On the first stage the features [R,I], only if elements are not
  // fp32, which the batch is.
  int64_t input = -1;
  // Tensors of the hidden layers, by layer of the stage.
  std::vector<int64_t> hidden = {};     // [R,H_l], the outputs of the activation function
  std::vector<int64_t> hidden_in = {};  // [R,H_l], its inputs; for the backward of GELU alone
  // [R,H_l], their gradients, from backward to backward_weights(); only with splits_backward.
  std::vector<int64_t> late = {};
  // Only on the last stage, like the next two.
  int64_t outputs = -1;  // [R,O]; in training later their gradient
  int64_t losses = -1;   // [R] fp32
  int64_t hits = -1;     // [R] fp32; only when evaluating a classifier
  int64_t bytes = 0;     // size of the arena

  // Two places for gradients of hidden values, [R, the largest H_l], which layers use in turn.
  int64_t gradients[2] = {-1, -1};
  int64_t scratch_bytes = 0;
};

struct MlpLayoutOptions {
  Stage stage;
  int64_t value_bytes = 4;
  bool splits_backward = false;  // ModelOptions::splits_backward
};
// `shape` has sequences of length 1.
MlpLayout mlp_layout(const MlpConfig& config, const ActivationShape& shape,
                     const MlpLayoutOptions& options);

}  // namespace lockstep::model
