#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

// What the blocks are made of.
enum class Family : uint8_t {
  // Learned positions, layer norms, GELU, biases. Source: Radford et al., "Language models are
  // unsupervised multitask learners", 2019.
  kGpt2,
  // Rotary positions, RMS norms, SwiGLU, queries that share keys and values, no biases. Source:
  // Touvron et al., "LLaMA", 2023; Grattafiori et al., "The Llama 3 herd of models", 2024.
  kLlama,
};

// "gpt2", "llama"; kNotFound for any other name.
std::string_view family_name(Family family);
Result<Family> family_from_name(std::string_view name);

// Rotary frequencies stretched to a context longer than the one trained on at first, as Llama 3.1
// has them (kernels/ops/rotary.h has the formula); factor 1: not stretched.
struct RotaryScaling {
  double factor = 1;
  double low_turns = 1;
  double high_turns = 4;
  int64_t original_context = 8192;

  bool operator==(const RotaryScaling&) const = default;
};

// The dimensions of a model: pre-norm blocks of causal attention and an MLP.
struct ModelConfig {
  int64_t layers = 0;
  int64_t width = 0;       // C
  int64_t heads = 0;       // each of width / heads
  int64_t context = 0;     // the longest sequence, in tokens
  int64_t vocabulary = 0;  // without padding
  Family family = Family::kGpt2;
  int64_t hidden = 0;          // values of the MLP between its products; 0: hidden_width() says
  bool tied = true;            // the head's weights are the token embedding
  int64_t kv_heads = 0;        // of keys and values; 0: heads. This and what follows: of a Llama
  double rotary_base = 10000;  // theta
  RotaryScaling rotary_scaling = {};
  double norm_epsilon = 1e-5;

  int64_t head_dim() const { return width / heads; }
  int64_t kv_head_count() const { return kv_heads == 0 ? heads : kv_heads; }
  int64_t kv_width() const { return kv_head_count() * head_dim(); }  // D
  int64_t qkv_width() const { return width + 2 * kv_width(); }       // C+2D
  // H: what `hidden` says, else 4C of a GPT-2; of a Llama 8/3 C, up to a multiple of 256, as
  // LLaMA's code has it.
  int64_t hidden_width() const;
  // Of the first product's output: gate and up of a Llama (2H), else H.
  int64_t hidden_in_width() const;
  bool operator==(const ModelConfig&) const = default;
};

// gpt2-124m and larger, llama-2-7b and the like; kNotFound with the known names for any other.
Result<ModelConfig> model_preset(std::string_view name);
// Family by family, generation by generation, in the order of their sizes.
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

// Rows of the token embedding and the head over all shards: vocabularies of 4096 and more are
// filled up with rows that stay zero to a multiple of 64 rows a shard (GEMM tiles; 50257 becomes
// 50304), smaller ones to a multiple of the shards.
int64_t padded_vocabulary(const ModelConfig& config, int64_t tensor);

}  // namespace lockstep
