#include "common/layout/activations.h"

#include <algorithm>

namespace lockstep {
namespace {

// Hands out consecutive ranges, each at a multiple of 64 bytes.
class Bump {
 public:
  int64_t take(int64_t count) {
    const int64_t offset = next_;
    next_ = (next_ + count + 15) / 16 * 16;
    return offset;
  }
  int64_t count() const { return next_; }

 private:
  int64_t next_ = 0;
};

LayerActivations layer(Bump& bump, const ModelConfig& config, const TensorShard& shard,
                       const ActivationShape& shape) {
  const int64_t rows = shape.rows();
  const int64_t stream = rows * config.width;
  const int64_t split = stream / shard.size;
  const bool train = shape.mode == PassMode::kTrain;
  LayerActivations at;
  at.input = bump.take(stream);
  at.norm1 = bump.take(stream);
  at.qkv = bump.take(3 * split);
  at.attention = bump.take(split);
  at.middle = bump.take(stream);
  at.norm2 = train ? bump.take(stream) : at.norm1;
  at.hidden = bump.take(4 * split);
  if (!train) return at;
  at.hidden_in = bump.take(4 * split);
  at.lse = bump.take(rows * config.heads / shard.size);
  for (int64_t* vector : {&at.mean1, &at.rstd1, &at.mean2, &at.rstd2}) *vector = bump.take(rows);
  return at;
}

void head(Bump& bump, const ModelConfig& config, const TensorShard& shard,
          const ActivationShape& shape, ActivationArena& arena) {
  const int64_t rows = shape.rows();
  arena.norm = bump.take(rows * config.width);
  arena.logits = bump.take(rows * padded_vocabulary(config, shard.size) / shard.size);
  arena.losses = bump.take(rows);
  if (shape.mode == PassMode::kTrain) {
    arena.mean = bump.take(rows);
    arena.rstd = bump.take(rows);
  }
  if (shard.size > 1) {
    for (int64_t* vector : {&arena.maxima, &arena.sums, &arena.target_logits}) {
      *vector = bump.take(rows);
    }
  }
}

}  // namespace

ActivationArena activation_arena(const ModelConfig& config, const Stage& stage,
                                 const TensorShard& shard, const ActivationShape& shape) {
  Bump bump;
  ActivationArena arena;
  const auto layers = static_cast<size_t>(layer_count(stage, config));
  for (size_t i = 0; i < layers; ++i) {
    const bool shared = shape.mode == PassMode::kEvaluate && i > 0;
    arena.layers.push_back(shared ? arena.layers[0] : layer(bump, config, shard, shape));
  }
  const bool reuse = shape.mode == PassMode::kEvaluate && layers > 0;
  arena.output = reuse ? arena.layers[0].input : bump.take(shape.rows() * config.width);
  if (has_head(stage, config)) head(bump, config, shard, shape, arena);
  arena.count = bump.count();
  return arena;
}

BackwardScratch backward_scratch(const ModelConfig& config, const TensorShard& shard,
                                 const ActivationShape& shape) {
  BackwardScratch scratch;
  if (shape.mode != PassMode::kTrain) return scratch;
  const int64_t stream = shape.rows() * config.width;
  Bump bump;
  scratch.stream = bump.take(stream);
  scratch.branch = bump.take(stream);
  scratch.wide = bump.take(4 * stream / shard.size);
  scratch.count = bump.count();
  return scratch;
}

}  // namespace lockstep
