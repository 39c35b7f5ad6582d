#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/layout/model_config.h"

namespace lockstep {

enum class PassMode : uint8_t {
  kTrain,     // keeps what backward reads, or what backward recomputes it from
  kEvaluate,  // computes losses only; all layers share one set of buffers
};

struct ActivationShape {
  int64_t batch = 0;     // B, sequences per micro-batch
  int64_t sequence = 0;  // T, tokens per sequence; at most the model's context
  PassMode mode = PassMode::kTrain;

  int64_t rows() const { return batch * sequence; }
  bool operator==(const ActivationShape&) const = default;
};

// Selects the activations that backward recomputes instead of keeping. Gradients are bit-identical
// to those with kNone if an operation gives the same bits however it is called (true on the CPU).
// Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
enum class Recompute : uint8_t {
  kNone,    // nothing
  kOps,     // outputs of norms and of GELU or SwiGLU; costs no matrix product
  kBlocks,  // everything but a layer's input: one forward of the layer without its last product
};

// Parses "none", "ops" or "blocks"; kInvalid for any other name.
Result<Recompute> parse_recompute(std::string_view name);

// The most logits (elements) that the head holds at a time: 1 GiB in bf16. A vocabulary of 50304
// gives chunks of 8192 rows. Each chunk of H rows reads and writes the fp32 gradient of the head's
// weight once more: 8 bytes per element, compared with 6 H operations. On a device that does 200
// operations in the time of one byte, this is 3 % of the head's time at H = 8192.
inline constexpr int64_t kHeadLogitsMax = int64_t{1} << 29;

// How a rank stores its activations; the same for all its micro-batches.
struct ActivationOptions {
  int64_t value_bytes = 4;  // bytes per element: 4 in fp32, 2 in bf16
  Recompute recompute = Recompute::kNone;
  int64_t head_logits_max = kHeadLogitsMax;  // tests lower it
  // Sequence parallelism: between tensor-parallel regions, each shard keeps its part of the rows
  // (row_shard()). Source: Korthikanti et al., "Reducing Activation Recomputation in Large
  // Transformer Models", 2022.
  bool splits_rows = false;

  bool operator==(const ActivationOptions&) const = default;
};

// Returns the part of a micro-batch's R rows that a shard keeps between regions: all of them, or
// the block [index * S, (index + 1) * S) with S = R / size. R is then a multiple of size.
TensorShard row_shard(const TensorShard& shard, const ActivationOptions& options);

// Byte offsets of a layer's tensors in the arena of one micro-batch; -1: not kept. Elements have
// ActivationOptions::value_bytes, except those marked fp32. Layers that need not keep a tensor for
// backward share one place for it. Dimensions:
// - R = B*T
// - S = R, or R / shards with ActivationOptions::splits_rows
// - C = width
// - C' = C / shards
// - D' = width of a shard's keys: width of the keys / shards (C' in a GPT-2), at least one head
// - H' = hidden width / shards
// - NH' = heads / shards
// - V' = padded vocabulary / shards
struct LayerActivations {
  // [S,C] the layer's input residual stream. The previous layer also leaves its MLP output here;
  // the first norm adds it to the stream.
  int64_t input = -1;
  int64_t norm1 = -1;                  // [S,C]
  int64_t qkv = -1;                    // [R,C'+2D'], in a Llama after rotary embedding
  int64_t attention = -1;              // [R,C']
  int64_t lse = -1;                    // [B,NH',T] fp32
  int64_t post_attention_stream = -1;  // [S,C] the residual stream after attention
  int64_t norm2 = -1;                  // [S,C]
  int64_t hidden_in = -1;              // [R,H'] input of GELU; in a Llama [R,2H'], gate and up
  int64_t hidden = -1;                 // [R,H'] output of GELU or SwiGLU
  // [S] fp32, statistics of the norms. An RMS norm has no mean; rstd holds its 1 / rms.
  int64_t mean1 = -1, rstd1 = -1, mean2 = -1, rstd2 = -1;
};

// Tensors of the H rows that the head processes at a time; all chunks reuse the same place.
struct HeadChunk {
  int64_t logits = -1;                                 // [H,V']
  int64_t maxima = -1, sums = -1, target_logits = -1;  // [H] fp32, sharded vocabulary only
};

struct ActivationArena {
  std::vector<LayerActivations> layers;  // of the stage
  int64_t output = -1;           // [S,C] the last layer's MLP output, later the residual stream
  int64_t norm = -1;             // [S,C] final norm; this and below only with the head
  int64_t mean = -1, rstd = -1;  // [S] fp32, as in LayerActivations
  // A head's transform: the output of the product, that of GELU, and that of the norm, all [S,C],
  // and the norm's statistics [S] fp32. In evaluation the norm's output is where `norm` is, and
  // GELU works in place.
  int64_t transform_in = -1, transform = -1, transform_norm = -1;
  int64_t transform_mean = -1, transform_rstd = -1;
  int64_t losses = -1;    // [R] fp32
  int64_t head_rows = 0;  // H, the rows that the head processes at a time
  HeadChunk chunk;    // in evaluation; in training, all micro-batches share one (BackwardScratch)
  int64_t bytes = 0;  // size of the arena
};

// Returns how many of `rows` rows the head processes at a time: all of them, or the largest power
// of two whose logits are at most head_logits_max elements.
int64_t head_rows(const ModelConfig& config, const TensorShard& shard, int64_t rows,
                  const ActivationOptions& options);

ActivationArena activation_arena(const ModelConfig& config, const Stage& stage,
                                 const TensorShard& shard, const ActivationShape& shape,
                                 const ActivationOptions& options = {});

// Additional memory for backward, shared by all micro-batches of a stage; byte offsets as above.
// Does not include the workspaces of the ops, which depend on the device and the threads; the
// kernels report those.
struct BackwardScratch {
  int64_t residual_gradient = -1;  // [S,C] the gradient of the residual stream
  int64_t branch_gradient =
      -1;  // [R,C] the gradient of a norm's output or of the attention's output
  // Gradient of the MLP's hidden values [R,H'], or of q, k and v [R,C'+2D'].
  int64_t wide_gradient = -1;
  // With the head only. Its logits share wide_gradient's place: the head's backward ends before a
  // layer's begins.
  HeadChunk chunk;
  int64_t bytes = 0;
};

BackwardScratch backward_scratch(const ModelConfig& config, const Stage& stage,
                                 const TensorShard& shard, const ActivationShape& shape,
                                 const ActivationOptions& options = {});

// Returns the bytes of the rows [R,C] that all shards' parts are gathered in: the input of a
// region's first product, the output of its last one, and their gradients, in turn. All
// micro-batches of a stage share it. 0 if each shard keeps all rows.
int64_t gathered_bytes(const ModelConfig& config, const TensorShard& shard,
                       const ActivationShape& shape, const ActivationOptions& options);

}  // namespace lockstep
