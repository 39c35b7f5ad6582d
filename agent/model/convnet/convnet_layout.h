#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/activations.h"
#include "common/layout/convnet_config.h"

namespace lockstep::model {

// Byte offsets of a unit's tensors in the arena of one micro-batch; -1: not kept. Legend: N
// samples, H x W pixels, K filters. Elements have value_bytes, except those marked otherwise.
struct UnitPlaces {
  int64_t conv = -1;      // [N,H,W,K] output of the convolution, which the backward of a norm reads
  int64_t out = -1;       // [N,H,W,K] after norm, shortcut and ReLU; may be conv's place
  int64_t pooled = -1;    // [N,H',W',K] the unit's output; without pooling it is out's place
  int64_t places = -1;    // [N,H',W',K] int32, of max-pooling in training
  int64_t mean = -1;      // [K] fp32, in training with a norm, like the next one
  int64_t variance = -1;  // [K] fp32
  // [N,H,W,K] the gradient of the convolution's output, from backward to backward_weights(); only
  // with splits_backward. May be the place of conv or of pooled.
  int64_t late = -1;
  // Offsets in the scratch: gradients of the unit's output and of `out`. They are the same place
  // without pooling. The model's last unit's is where its output is: -1.
  int64_t gradient = -1;
  int64_t out_gradient = -1;
  // Whether another unit, whose backward comes before, has written the gradient of this unit's
  // input, or its shortcut.
  bool adds_to_input = false;
  bool adds_to_shortcut = false;
};

struct ConvnetLayout {
  // The output of the unit before the stage, which its units read, and the gradient of that. On the
  // first stage the images [N,H,W,C], without a gradient; only if elements are not fp32, which the
  // batch is.
  UnitPlaces before = {};
  std::vector<UnitPlaces> units = {};  // of the stage
  int64_t losses = -1;                 // [N] fp32; only on the last stage, like the next ones
  int64_t hits = -1;                   // [N] fp32; only when evaluating, like the next one
  int64_t top_hits = -1;
  int64_t bytes = 0;  // size of the arena

  int64_t sums = -1;  // in the scratch: the sums of a norm (batchnorm_sums_count()), fp64
  int64_t scratch_bytes = 0;
};

struct ConvnetLayoutOptions {
  Stage stage;
  int64_t value_bytes = 4;
  bool splits_backward = false;  // ModelOptions::splits_backward
};
// `shape` has sequences of length 1.
ConvnetLayout convnet_layout(const ConvnetConfig& config, const ActivationShape& shape,
                             const ConvnetLayoutOptions& options);

}  // namespace lockstep::model
