#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/layout/model_config.h"

namespace lockstep {

enum class PassMode : uint8_t {
  kTrain,     // what backward reads is kept, or what it is computed from again
  kEvaluate,  // losses alone: all layers share one set of buffers
};

struct ActivationShape {
  int64_t batch = 0;     // B, sequences of the micro-batch
  int64_t sequence = 0;  // T, tokens; at most the model's context
  PassMode mode = PassMode::kTrain;

  int64_t rows() const { return batch * sequence; }
  bool operator==(const ActivationShape&) const = default;
};

// What backward computes again instead of finding it kept. Gradients are the same bits as with
// kNone where the same operation gives the same bits however it is called (on the CPU).
// Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
enum class Recompute : uint8_t {
  kNone,    // nothing
  kOps,     // what norms and GELU or SwiGLU give, which costs no product
  kBlocks,  // all of a layer but its input: a forward of the layer without its last product
};

// "none", "ops", "blocks"; kInvalid for any other.
Result<Recompute> parse_recompute(std::string_view name);

// The head has the logits of so many elements at a time, 1 GiB of them in bf16: a vocabulary of
// 50304 gives chunks of 8192 rows. Each chunk of H rows reads and writes the fp32 gradient of the
// head's weight once more, 8 bytes an element, beside 6 H operations for it: 3 % of the head's time
// at H = 8192 where the device makes 200 operations in the time of a byte.
inline constexpr int64_t kHeadLogitsMax = int64_t{1} << 29;

// How a rank keeps its activations: the same for all its micro-batches.
struct ActivationOptions {
  int64_t value_bytes = 4;  // of an element: 4 in fp32, 2 in bf16
  Recompute recompute = Recompute::kNone;
  int64_t head_logits_max = kHeadLogitsMax;  // tests lower it

  bool operator==(const ActivationOptions&) const = default;
};

// Places of a layer's tensors in the arena of one micro-batch, in bytes; R = B*T, C width, and of
// one tensor shard's part: C' = C / shards, D' = width of the keys / shards (C' of a GPT-2), H' =
// hidden width / shards, NH' = heads / shards, V' = padded vocabulary / shards. -1: not kept.
// Values are of ActivationOptions::value_bytes, what is marked fp32 always is that. Layers that
// need not keep a tensor for backward have the same place for it.
struct LayerActivations {
  int64_t input = -1;  // [R,C] the residual stream as the layer finds it; also where the layer
                       // before leaves its MLP's output, which the first norm adds to the stream
  int64_t norm1 = -1;  // [R,C]
  int64_t qkv = -1;    // [R,C'+2D'], of a Llama turned by their positions
  int64_t attention = -1;  // [R,C']
  int64_t lse = -1;        // [B,NH',T] fp32
  int64_t middle = -1;     // [R,C] the residual stream after attention
  int64_t norm2 = -1;      // [R,C]
  int64_t hidden_in = -1;  // [R,H'] before GELU; of a Llama [R,2H'], gate and up
  int64_t hidden = -1;     // [R,H'] after it; of a Llama SwiGLU's output
  // [R] fp32, of the norms; an RMS norm has no mean, its 1 / rms is in rstd
  int64_t mean1 = -1, rstd1 = -1, mean2 = -1, rstd2 = -1;
};

struct ActivationArena {
  std::vector<LayerActivations> layers;  // of the stage
  int64_t output = -1;                   // [R,C] the last layer's MLP output, later the stream
  int64_t norm = -1;                     // [R,C] final norm; this and below only with the head
  int64_t mean = -1, rstd = -1;          // [R] fp32, as above
  int64_t losses = -1;                   // [R] fp32
  // A chunk of the head: H rows at a time, each chunk in the place of the one before.
  int64_t head_rows = 0;                               // H
  int64_t logits = -1;                                 // [H,V']
  int64_t maxima = -1, sums = -1, target_logits = -1;  // [H] fp32, where the vocabulary is sharded
  int64_t bytes = 0;                                   // of the arena
};

inline constexpr int64_t kActivationAlign = 256;  // of every place

// How many of `rows` rows the head takes at a time: all of them, or the largest power of two whose
// logits are at most head_logits_max elements.
int64_t head_rows(const ModelConfig& config, const TensorShard& shard, int64_t rows,
                  const ActivationOptions& options);

ActivationArena activation_arena(const ModelConfig& config, const Stage& stage,
                                 const TensorShard& shard, const ActivationShape& shape,
                                 const ActivationOptions& options = {});

// What backward needs beside, once for all micro-batches of a stage: places in bytes, as above.
// Workspaces of the ops, which depend on the device and the threads, are the kernels' own to tell.
struct BackwardScratch {
  int64_t stream = -1;  // [R,C] the gradient of the residual stream
  int64_t branch = -1;  // [R,C] the gradient of what a norm gave out, or of the attention's output
  int64_t wide = -1;    // [R,H'] of the MLP's hidden values; [R,C'+2D'] of q, k and v
  int64_t bytes = 0;
};

BackwardScratch backward_scratch(const ModelConfig& config, const TensorShard& shard,
                                 const ActivationShape& shape,
                                 const ActivationOptions& options = {});

}  // namespace lockstep
