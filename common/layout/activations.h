#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/model_config.h"

namespace lockstep {

enum class PassMode : uint8_t {
  kTrain,     // everything that backward reads is kept, layer by layer
  kEvaluate,  // losses alone: all layers share one set of buffers
};

struct ActivationShape {
  int64_t batch = 0;     // B, sequences of the micro-batch
  int64_t sequence = 0;  // T, tokens; at most the model's context
  PassMode mode = PassMode::kTrain;

  int64_t rows() const { return batch * sequence; }
  bool operator==(const ActivationShape&) const = default;
};

// Offsets in floats into the arena of one micro-batch; R = B*T, C width, and of one tensor shard's
// part: C' = C / shards, NH' = heads / shards, V' = padded vocabulary / shards. -1: not kept.
struct LayerActivations {
  int64_t input = -1;  // [R,C] the residual stream as the layer finds it; also where the layer
                       // before leaves its MLP's output, which the first norm adds to the stream
  int64_t norm1 = -1;  // [R,C]
  int64_t qkv = -1;    // [R,3C']
  int64_t attention = -1;  // [R,C']
  int64_t lse = -1;        // [B,NH',T]
  int64_t middle = -1;     // [R,C] the residual stream after attention
  int64_t norm2 = -1;      // [R,C]
  int64_t hidden_in = -1;  // [R,4C'] before GELU
  int64_t hidden = -1;     // [R,4C'] after it
  int64_t mean1 = -1, rstd1 = -1, mean2 = -1, rstd2 = -1;  // [R]
};

struct ActivationArena {
  std::vector<LayerActivations> layers;  // of the stage
  int64_t output = -1;                   // [R,C] the last layer's MLP output, later the stream
  int64_t norm = -1;                     // [R,C] final norm; this and below only with the head
  int64_t mean = -1, rstd = -1;          // [R]
  int64_t logits = -1;                   // [R,V']
  int64_t losses = -1;                   // [R]
  int64_t maxima = -1, sums = -1, target_logits = -1;  // [R], where the vocabulary is sharded
  int64_t count = 0;                                   // floats of the arena
};

ActivationArena activation_arena(const ModelConfig& config, const Stage& stage,
                                 const TensorShard& shard, const ActivationShape& shape);

// What backward needs beside, once for all micro-batches of a stage (floats; workspaces of the ops,
// which depend on the device and the threads, are the kernels' own to tell).
struct BackwardScratch {
  int64_t stream = -1;  // [R,C] the gradient of the residual stream
  int64_t branch = -1;  // [R,C] the gradient of what a norm gave out, or of the attention's output
  int64_t wide = -1;    // [R,4C'] of the MLP's hidden values; [R,3C'] of q, k and v
  int64_t count = 0;
};

BackwardScratch backward_scratch(const ModelConfig& config, const TensorShard& shard,
                                 const ActivationShape& shape);

}  // namespace lockstep
