#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/layout/model_config.h"

namespace lockstep {

enum class Init : uint8_t {
  kNormal,          // N(0, 0.02)
  kResidualNormal,  // N(0, 0.02 / sqrt(2 layers)): projections that add to the residual stream
  kZero,
  kOne,
};

// A run of rows of a packed parameter.
struct ParameterPart {
  int64_t rows = 0;
  // Of the tensor that Hugging Face stores for these rows alone; empty where it stores the
  // parameter packed.
  std::string name = {};
};

// A parameter of the whole model. Names are Hugging Face's: of GPT2LMHeadModel
// (`transformer.h.0.attn.c_attn.weight`), whose matrices of a block are Conv1D's, the transposes of
// ours, and of LlamaForCausalLM (`model.layers.0.mlp.down_proj.weight`). Matrices are [out, in] as
// in nn.Linear. What one product computes is one parameter: GPT-2's c_attn, as Hugging Face has it,
// and of a Llama self_attn.qkv_proj (q, k, v) and mlp.gate_up_proj (gate, up), which are three and
// two tensors there, told by `parts`; the packed names are those of Hugging Face's Phi-3.
struct Parameter {
  int64_t id = 0;  // its place in the table: a block's are consecutive, blocks in order
  std::string name;
  int64_t block = 0;              // where it lives; a tied embedding also serves the head's block
  std::array<int64_t, 2> dims{};  // logical and global, without padding; a vector is {n, 1}
  int rank = 1;                   // number of dims: 1 or 2
  // Tensor parallelism splits this dim evenly over its shards; -1: every rank has all of it. Of a
  // packed parameter each part is split.
  int shard_axis = -1;
  std::vector<ParameterPart> parts = {};  // that dims[0] consists of; empty: not packed
  bool of_vocabulary = false;             // a row a token: ranks hold padded_vocabulary() rows
  bool weight_decay = false;              // matrices and embeddings, not biases and norms
  Init init = Init::kZero;
  // How often backward adds to the gradient in one micro-batch: the tied embedding 2, others 1.
  int contributions = 1;

  int64_t count() const { return dims[0] * dims[1]; }
  // {n} of a vector, {out, in} of a matrix.
  std::vector<int64_t> shape() const { return {dims.begin(), dims.begin() + rank}; }
};

inline constexpr int64_t kTokenEmbedding = 0;     // id of the token embedding
inline constexpr int64_t kPositionEmbedding = 1;  // of a GPT-2's positions

// Of the whole model. Backward completes gradients in descending order of id, the tied embedding,
// number 0, last.
std::vector<Parameter> parameter_table(const ModelConfig& config);

// The ids that a block reads, ascending: the head's are the token embedding and the final norm, or
// the final norm and a head of its own.
std::vector<int64_t> block_parameters(const ModelConfig& config, int64_t block);

// Of all logical elements; a tied embedding counts once.
int64_t parameter_count(const ModelConfig& config);

// What one rank holds of a parameter, and where, in a flat arena of floats.
struct ArenaEntry {
  int64_t id = 0;
  int64_t offset = 0;             // floats; a multiple of 16 (64 bytes)
  std::array<int64_t, 2> dims{};  // of the local part, with padding rows
  int64_t count = 0;              // dims[0] * dims[1]
  // Whether this rank's stage counts it in the gradient norm: a tied embedding that lives on two
  // stages is counted where its block is.
  bool counted = true;
};

// The arena of one rank's parameters; gradients and optimizer states have the same layout.
struct ParameterArena {
  std::vector<ArenaEntry> entries;  // ascending id
  int64_t count = 0;                // floats, gaps included

  // The entry with that id, or null where the rank does not hold it.
  const ArenaEntry* find(int64_t id) const;
};

ParameterArena parameter_arena(const ModelConfig& config, const Stage& stage,
                               const TensorShard& shard = {});

// A run of consecutive elements that a rank's part and the logical global tensor have in common.
struct ShardRun {
  int64_t local = 0;   // element within the local part
  int64_t global = 0;  // element within the logical tensor
  int64_t count = 0;
};

// The local part as runs of the logical tensor, ascending in both; padding is in none. For
// checkpoints that any mesh loads, and for initial values that do not depend on the mesh.
std::vector<ShardRun> shard_runs(const Parameter& parameter, const ArenaEntry& entry,
                                 const TensorShard& shard);

}  // namespace lockstep
