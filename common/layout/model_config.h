#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

// The dimensions of a GPT-2: learned positions, pre-norm blocks, a head tied to the token
// embedding. Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
struct ModelConfig {
  int64_t layers = 0;
  int64_t width = 0;       // C
  int64_t heads = 0;       // each of width / heads
  int64_t context = 0;     // the longest sequence, in tokens
  int64_t vocabulary = 0;  // without padding

  int64_t head_dim() const { return width / heads; }
  bool operator==(const ModelConfig&) const = default;
};

// gpt2-124m, gpt2-350m, gpt2-774m, gpt2-1.5b; kNotFound with the known names for any other.
Result<ModelConfig> model_preset(std::string_view name);
// In the order of their sizes.
std::vector<std::string> model_preset_names();

// Every mistake, each `path.field: what was found, what would be right`; empty if the model can be
// built and split over `tensor` ranks. Bounds are such that no size overflows 64 bits.
std::vector<std::string> model_problems(const ModelConfig& config, int64_t tensor = 1,
                                        std::string_view path = "model");
// The same as one kInvalid, a line a problem.
Status validate(const ModelConfig& config, int64_t tensor = 1, std::string_view path = "model");

// The consecutive blocks that one pipeline stage has. Blocks are numbered over the whole model: 0
// is the embedding, 1..layers are the transformer's, layers + 1 is the final norm with head and
// loss.
struct Stage {
  int64_t begin = 0;  // first block
  int64_t end = 0;    // past the last one

  int64_t blocks() const { return end - begin; }
  bool operator==(const Stage&) const = default;
};

inline int64_t block_count(const ModelConfig& config) {
  return config.layers + 2;
}
inline int64_t head_block(const ModelConfig& config) {
  return config.layers + 1;
}
inline bool has_embedding(const Stage& stage) {
  return stage.begin == 0;
}
inline bool has_head(const Stage& stage, const ModelConfig& config) {
  return stage.end == block_count(config);
}
// The transformer blocks of the stage.
int64_t layer_count(const Stage& stage, const ModelConfig& config);

Stage whole_model(const ModelConfig& config);
// Layers spread as evenly as they go over `size` stages, the earlier ones getting one more; 0 <=
// index < size <= layers.
Stage pipeline_stage(const ModelConfig& config, int64_t size, int64_t index);

// One rank's part of what tensor parallelism splits.
struct TensorShard {
  int64_t index = 0;
  int64_t size = 1;

  bool operator==(const TensorShard&) const = default;
};

// Rows of the token embedding over all shards: vocabularies of 4096 and more are filled up with
// rows that stay zero to a multiple of 64 rows a shard (GEMM tiles; 50257 becomes 50304), smaller
// ones to a multiple of the shards.
int64_t padded_vocabulary(const ModelConfig& config, int64_t tensor);

}  // namespace lockstep
