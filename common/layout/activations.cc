#include "common/layout/activations.h"

#include <algorithm>
#include <bit>
#include <string>

#include "common/layout/bump_allocator.h"

namespace lockstep {
namespace {

// Which layers have their own place for a tensor.
enum class Kept : uint8_t {
  kAlways,        // every layer, when training
  kUnlessBlocks,  // unless blocks are recomputed
  kUnlessOps,     // unless blocks or ops are recomputed
};

struct LayerTensor {
  int64_t LayerActivations::*place;
  int64_t count;  // for the whole micro-batch
  Kept kept;
  bool is_float = false;         // fp32 whatever value_bytes is
  bool is_for_backward = false;  // absent in evaluation
};

// Returns S of activations.h.
int64_t kept_rows(const TensorShard& shard, const ActivationShape& shape,
                  const ActivationOptions& options) {
  const int64_t shards = row_shard(shard, options).size;
  CHECK(shape.rows() % shards == 0);
  return shape.rows() / shards;
}

// Returns the tensors in arena order.
std::vector<LayerTensor> layer_tensors(const ModelConfig& config, const TensorShard& shard,
                                       int64_t rows, int64_t kept_rows) {
  using At = LayerActivations;
  const BlockDesign& design = config.design();
  const int64_t stream = kept_rows * config.width;
  const auto split = [&](int64_t width) { return rows * width / shard.size; };
  const auto statistic = [kept_rows](int64_t At::*place) {
    return LayerTensor{place, kept_rows, Kept::kUnlessBlocks, true, true};
  };
  std::vector<LayerTensor> tensors = {
      {&At::input, stream, Kept::kAlways},
      {&At::norm1, stream, Kept::kUnlessOps},
      {&At::qkv, rows * config.local_qkv_width(shard.size), Kept::kUnlessBlocks},
      {&At::attention, split(config.width), Kept::kUnlessBlocks},
      {&At::post_attention_stream, stream, Kept::kUnlessBlocks},
      // In evaluation both norms share a place, unless the second one adds the first one's output.
      {&At::norm2, stream, Kept::kUnlessOps, false, !design.norms_the_stream},
      {&At::hidden, split(config.hidden_width()), Kept::kUnlessOps},
      // If nothing is kept, GELU works in place; SwiGLU does not.
      {&At::hidden_in, split(config.hidden_in_width()), Kept::kUnlessBlocks, false,
       !design.has_swiglu()},
      {&At::lse, split(config.heads), Kept::kUnlessBlocks, true, true},
      statistic(&At::rstd1),
      statistic(&At::rstd2)};
  if (design.norm == NormKind::kRms) return tensors;
  tensors.insert(tensors.end(), {statistic(&At::mean1), statistic(&At::mean2)});
  return tensors;
}

bool has_own_place(const LayerTensor& tensor, const ActivationShape& shape, Recompute recompute) {
  if (shape.mode == PassMode::kEvaluate) return false;
  switch (tensor.kept) {
    case Kept::kAlways:
      return true;
    case Kept::kUnlessBlocks:
      return recompute != Recompute::kBlocks;
    case Kept::kUnlessOps:
      return recompute == Recompute::kNone;
  }
  return true;
}

// Places the stage's layers. Tensors that layers share are allocated with the first layer.
std::vector<LayerActivations> place_layers(BumpAllocator& bump, const ModelConfig& config,
                                           const Stage& stage, const TensorShard& shard,
                                           const ActivationShape& shape,
                                           const ActivationOptions& options) {
  std::vector<LayerActivations> layers;
  const auto tensors = layer_tensors(config, shard, shape.rows(), kept_rows(shard, shape, options));
  for (int64_t i = 0; i < layer_count(stage, config); ++i) {
    LayerActivations at;
    for (const LayerTensor& tensor : tensors) {
      if (shape.mode == PassMode::kEvaluate && tensor.is_for_backward) continue;
      const bool is_new = i == 0 || has_own_place(tensor, shape, options.recompute);
      const int64_t count = tensor.count;
      at.*tensor.place = !is_new           ? layers[0].*tensor.place
                         : tensor.is_float ? bump.floats(count)
                                           : bump.values(count);
    }
    if (at.norm2 < 0) at.norm2 = at.norm1;
    layers.push_back(at);
  }
  return layers;
}

// Returns how many logits a shard has for these rows.
int64_t logits_count(const ModelConfig& config, const TensorShard& shard, int64_t rows) {
  return rows * (padded_vocabulary(config, shard.size) / shard.size);
}

void place_sums(BumpAllocator& bump, const TensorShard& shard, int64_t rows, HeadChunk& chunk) {
  if (shard.size == 1) return;
  for (int64_t* vector : {&chunk.maxima, &chunk.sums, &chunk.target_logits}) {
    *vector = bump.floats(rows);
  }
}

void place_transform(BumpAllocator& bump, int64_t rows, const ModelConfig& config, PassMode mode,
                     ActivationArena& arena) {
  arena.transform = bump.values(rows * config.width);
  arena.transform_norm = arena.norm;
  if (mode != PassMode::kTrain) return;
  arena.transform_in = bump.values(rows * config.width);
  arena.transform_norm = bump.values(rows * config.width);
  arena.transform_mean = bump.floats(rows);
  arena.transform_rstd = bump.floats(rows);
}

void place_head(BumpAllocator& bump, const ModelConfig& config, const TensorShard& shard,
                const ActivationShape& shape, const ActivationOptions& options,
                ActivationArena& arena) {
  const int64_t rows = kept_rows(shard, shape, options);
  arena.norm = bump.values(rows * config.width);
  arena.losses = bump.floats(shape.rows());
  if (shape.mode == PassMode::kTrain) {
    arena.rstd = bump.floats(rows);
    if (config.design().norm == NormKind::kLayer) arena.mean = bump.floats(rows);
  }
  if (config.design().head_transform) place_transform(bump, rows, config, shape.mode, arena);
  if (shape.mode == PassMode::kTrain) return;
  arena.chunk.logits = bump.values(logits_count(config, shard, arena.head_rows));
  place_sums(bump, shard, arena.head_rows, arena.chunk);
}

}  // namespace

Result<Recompute> parse_recompute(std::string_view name) {
  if (name == "none") return Recompute::kNone;
  if (name == "ops") return Recompute::kOps;
  if (name == "blocks") return Recompute::kBlocks;
  return invalid("[recompute] expected none, ops or blocks, got \"" + std::string(name) + "\"",
                 Blame::kConfig);
}

TensorShard row_shard(const TensorShard& shard, const ActivationOptions& options) {
  return options.splits_rows ? shard : TensorShard();
}

int64_t head_rows(const ModelConfig& config, const TensorShard& shard, int64_t rows,
                  const ActivationOptions& options) {
  const int64_t columns = padded_vocabulary(config, shard.size) / shard.size;
  const int64_t fitting = std::max<int64_t>(1, options.head_logits_max / columns);
  return std::min(rows, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(fitting))));
}

ActivationArena activation_arena(const ModelConfig& config, const Stage& stage,
                                 const TensorShard& shard, const ActivationShape& shape,
                                 const ActivationOptions& options) {
  BumpAllocator bump(options.value_bytes);
  ActivationArena arena;
  arena.layers = place_layers(bump, config, stage, shard, shape, options);
  const bool reuse = shape.mode == PassMode::kEvaluate && !arena.layers.empty();
  arena.output =
      reuse ? arena.layers[0].input : bump.values(kept_rows(shard, shape, options) * config.width);
  if (has_head(stage, config)) {
    arena.head_rows = head_rows(config, shard, shape.rows(), options);
    place_head(bump, config, shard, shape, options, arena);
  }
  arena.bytes = bump.bytes();
  return arena;
}

BackwardScratch backward_scratch(const ModelConfig& config, const Stage& stage,
                                 const TensorShard& shard, const ActivationShape& shape,
                                 const ActivationOptions& options) {
  BackwardScratch scratch;
  if (shape.mode != PassMode::kTrain) return scratch;
  const int64_t stream = shape.rows() * config.width;
  BumpAllocator bump(options.value_bytes);
  scratch.residual_gradient = bump.values(kept_rows(shard, shape, options) * config.width);
  scratch.branch_gradient = bump.values(stream);
  const int64_t wide = shape.rows() * std::max(config.hidden_width() / shard.size,
                                               config.local_qkv_width(shard.size));
  const int64_t rows =
      has_head(stage, config) ? head_rows(config, shard, shape.rows(), options) : 0;
  scratch.wide_gradient = bump.values(std::max(wide, logits_count(config, shard, rows)));
  if (rows > 0) {
    scratch.chunk.logits = scratch.wide_gradient;
    place_sums(bump, shard, rows, scratch.chunk);
  }
  scratch.bytes = bump.bytes();
  return scratch;
}

int64_t gathered_bytes(const ModelConfig& config, const TensorShard& shard,
                       const ActivationShape& shape, const ActivationOptions& options) {
  if (row_shard(shard, options).size == 1) return 0;
  BumpAllocator bump(options.value_bytes);
  (void)bump.values(shape.rows() * config.width);
  return bump.bytes();
}

}  // namespace lockstep
