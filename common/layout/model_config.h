#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

// The architecture of the blocks.
enum class Family : uint8_t {
  // Learned positions, layer norms, GELU, biases. Source: Radford et al., "Language models are
  // unsupervised multitask learners", 2019.
  kGpt2,
  // Rotary positions, RMS norms, SwiGLU, grouped-query attention, no biases. Source: Touvron et
  // al., "LLaMA", 2023; Grattafiori et al., "The Llama 3 herd of models", 2024.
  kLlama,
  // Attention to both sides, norms after the additions, GELU by erf, token types, and a head that
  // predicts masked tokens. Source: Devlin et al., "BERT", 2019.
  kBert,
};

enum class NormKind : uint8_t { kLayer, kRms };
enum class PositionKind : uint8_t { kLearned, kRotary };
enum class MlpKind : uint8_t { kGelu, kSwiglu, kErfGelu };

// The properties in which the families differ. Models, layouts and memory ask for these
// properties, never for the family, so that a new family of transformers is a new row.
struct BlockDesign {
  NormKind norm = NormKind::kLayer;
  PositionKind positions = PositionKind::kLearned;
  MlpKind mlp = MlpKind::kGelu;
  bool biases = true;           // of the matrix products in the layers
  bool grouped_heads = false;   // may have fewer heads of keys and values than of queries
  bool tied_by_default = true;  // the head uses the token embedding unless the job says otherwise
  // A token sees all tokens of its sequence, not only earlier ones. Such a model is trained to
  // predict masked tokens (masked_count()).
  bool is_bidirectional = false;
  // A norm's output is what goes on as the residual stream, instead of its input. Each branch adds
  // to it, and the next norm follows.
  bool norms_the_stream = false;
  // Rows of the table of token types, of which sequences of a single segment use the first; 0: no
  // table.
  int64_t token_types = 0;
  // Before the head's product: a product of width x width, GELU by erf and a norm. The product has
  // a bias for each token.
  bool head_transform = false;
  bool sets_epsilon = false;  // a job may choose norm_epsilon
  double norm_epsilon = 1e-5;

  bool has_rotary() const { return positions == PositionKind::kRotary; }
  bool has_swiglu() const { return mlp == MlpKind::kSwiglu; }
  // Parameters of a norm: the weight, and a layer norm's bias.
  int64_t norm_parameters() const { return norm == NormKind::kLayer ? 2 : 1; }
  // Parameters of the embedding: the tables of tokens, positions and token types.
  int64_t embedding_parameters() const {
    return 1 + (has_rotary() ? 0 : 1) + (token_types > 0 ? 1 : 0);
  }
  // Parameters of the head in addition to its weight: the final norm, the transform's product and
  // norm, and the head's bias.
  int64_t head_extras() const {
    return norm_parameters() * (head_transform ? 2 : 1) + (head_transform ? 3 : 0);
  }
};
const BlockDesign& block_design(Family family);

// "gpt2", "llama", "bert". family_from_name: kNotFound for any other name.
std::string_view family_name(Family family);
Result<Family> family_from_name(std::string_view name);

// Stretches rotary frequencies to a context longer than the one first trained on, as in Llama 3.1
// (kernels/ops/rotary.h has the formula). Factor 1: no stretching.
struct RotaryScaling {
  double factor = 1;
  double low_turns = 1;
  double high_turns = 4;
  int64_t original_context = 8192;

  bool operator==(const RotaryScaling&) const = default;
};

// The dimensions of a model made of blocks, each with attention and an MLP.
struct ModelConfig {
  int64_t layers = 0;
  int64_t width = 0;       // C
  int64_t heads = 0;       // of width / heads values each
  int64_t context = 0;     // the longest sequence, in tokens
  int64_t vocabulary = 0;  // without padding
  Family family = Family::kGpt2;
  int64_t hidden = 0;          // width of the MLP's hidden layer; 0: the default of hidden_width()
  bool tied = true;            // the head uses the token embedding as its weights
  int64_t kv_heads = 0;        // heads of keys and values; 0: heads. Only with grouped_heads
  double rotary_base = 10000;  // theta; this and the scaling only with rotary positions
  RotaryScaling rotary_scaling = {};
  double norm_epsilon = 1e-5;  // another one than the design's only with sets_epsilon

  const BlockDesign& design() const { return block_design(family); }
  int64_t head_dim() const { return width / heads; }
  int64_t kv_head_count() const { return kv_heads == 0 ? heads : kv_heads; }
  int64_t kv_width() const { return kv_head_count() * head_dim(); }  // D
  int64_t qkv_width() const { return width + 2 * kv_width(); }       // C+2D
  // Heads of keys and values of each of `tensor` shards, and the width of its queries, keys and
  // values. If there are more shards than heads, neighbouring shards have the same one. Source:
  // Megatron-LM's grouped-query attention.
  int64_t local_kv_heads(int64_t tensor) const;
  int64_t local_qkv_width(int64_t tensor) const;
  // H: `hidden` if set, else 4C. With SwiGLU, 8/3 C rounded up to a multiple of 256, as in LLaMA's
  // code.
  int64_t hidden_width() const;
  // Width of the first MLP product's output: 2H with SwiGLU (gate and up), else H.
  int64_t hidden_in_width() const;
  bool operator==(const ModelConfig&) const = default;
};

// How many of `positions` tokens a bidirectional model predicts: 15 %, rounded to the nearest, and
// at least one. As it is the same in each sequence, the mean over the predicted tokens does not
// depend on how sequences are shared. Source: Devlin et al., "BERT", 2019.
int64_t masked_count(int64_t positions);

// Returns the dimensions of a preset (gpt2-124m, llama-2-7b, ...). kNotFound, with the known names,
// for any other name.
Result<ModelConfig> model_preset(std::string_view name);
// Returns the names ordered by family, generation and size.
std::vector<std::string> model_preset_names();

// Returns every mistake as `path.field: what was found, what would be right`; empty if the model
// can be built and split over `tensor` ranks. The bounds are such that no size overflows 64 bits.
std::vector<std::string> model_problems(const ModelConfig& config, int64_t tensor = 1,
                                        std::string_view path = "model");
// Returns the same problems as one kInvalid, one per line.
Status validate(const ModelConfig& config, int64_t tensor = 1, std::string_view path = "model");

// The consecutive blocks of one pipeline stage, or of a chunk of one. Blocks are numbered over the
// whole model: 0 is the embedding, 1..layers are the transformer blocks, layers + 1 is the final
// norm with head and loss.
struct Stage {
  int64_t begin = 0;  // first block
  int64_t end = 0;    // past the last one

  bool operator==(const Stage&) const = default;
};

inline int64_t block_count(const ModelConfig& config) {
  return config.layers + 2;
}
inline int64_t head_block(const ModelConfig& config) {
  return config.layers + 1;
}
inline bool has_head(const Stage& stage, const ModelConfig& config) {
  return stage.end == block_count(config);
}
// Returns whether one of the chunks has the block.
bool has_block(const std::vector<Stage>& chunks, int64_t block);
// Returns the number of transformer blocks in the stage.
int64_t layer_count(const Stage& stage, const ModelConfig& config);

Stage whole_model(const ModelConfig& config);
// Cuts the layers into `size` stages whose slowest one takes the least time: each has at least one,
// the last one has the head too, and the others have as many as each other, or the earlier ones one
// more. 0 <= index < size <= layers.
Stage pipeline_stage(const ModelConfig& config, int64_t size, int64_t index);

// One rank's part of the parameters that tensor parallelism splits.
struct TensorShard {
  int64_t index = 0;
  int64_t size = 1;

  bool operator==(const TensorShard&) const = default;
};

// Returns the rows of the token embedding and the head over all shards. Vocabularies of 4096 and
// more are padded with zero rows to a multiple of 64 rows per shard (GEMM tiles; 50257 becomes
// 50304). Smaller ones are padded to a multiple of the number of shards.
int64_t padded_vocabulary(const ModelConfig& config, int64_t tensor);

}  // namespace lockstep
