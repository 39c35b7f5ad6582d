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
  kUniform,  // U(-1, 1) / sqrt(fan_in), as nn.Linear draws weight and bias
};

// A run of rows of a packed parameter.
struct ParameterPart {
  int64_t rows = 0;
  // Name of the tensor that Hugging Face stores for just these rows; empty if it stores the
  // parameter packed.
  std::string name = {};
  // The most pieces into which shards divide it; 0: no limit. If there are more shards (a multiple
  // of it), neighbouring shards have the same piece: each uses the head's keys and values for its
  // own heads of queries.
  int64_t pieces_max = 0;
};

// A parameter of the whole model. Matrices are [out, in], as in nn.Linear.
//
// Names are those of Hugging Face. For a GPT-2: GPT2LMHeadModel
// (`transformer.h.0.attn.c_attn.weight`), where the matrices of a block are stored as Conv1D,
// transposed compared with ours. For a Llama: LlamaForCausalLM
// (`model.layers.0.mlp.down_proj.weight`).
//
// For a BERT: BertForMaskedLM (`bert.encoder.layer.0.output.dense.weight`). A block of ours begins
// with the norm that ends Hugging Face's layer before it: the embedding's in the first block. The
// last layer's is the head's.
//
// Everything that one matrix product computes is one parameter. GPT-2's c_attn is packed in Hugging
// Face too. A Llama's self_attn.qkv_proj (q, k, v) and mlp.gate_up_proj (gate, up) are three and
// two tensors there, listed in `parts`; the packed names are those of Hugging Face's Phi-3.
struct Parameter {
  int64_t id = 0;  // index in the table; ids of a block are consecutive, and blocks are in order
  std::string name;
  int64_t block = 0;  // the block that owns it; the head's block also reads a tied embedding
  std::array<int64_t, 2> dims{};  // logical and global, without padding; {n, 1} for a vector
  int rank = 1;                   // number of dims: 1 or 2
  // The dim that tensor parallelism splits evenly over the shards; -1: every rank has all of it. In
  // a packed parameter, each part is split.
  int shard_axis = -1;
  std::vector<ParameterPart> parts = {};  // parts of dims[0]; empty: not packed
  // Its gradient is a sum over the rows that a shard keeps: of a norm, or of a head's transform.
  bool works_on_rows = false;
  bool of_vocabulary = false;  // one row per token: ranks hold padded_vocabulary() rows
  bool weight_decay = false;   // true for matrices and embeddings, false for biases and norms
  // The weights of a hidden layer's products, which Muon orthogonalises: each of the parts, or all
  // of it. Not an embedding, nor a layer that reads the samples or makes the outputs.
  bool is_hidden_matrix = false;
  Init init = Init::kZero;
  int64_t fan_in = 0;  // only for kUniform: the inputs of its layer
  // A running statistic of batch normalisation. Its gradient is its distance from the statistic of
  // the step, and every step takes kStatisticRate of that, whatever the optimizer, the learning
  // rate and the clipping. It does not count in the gradient norm.
  bool is_statistic = false;

  int64_t count() const { return dims[0] * dims[1]; }
  // Returns {n} for a vector, {out, in} for a matrix.
  std::vector<int64_t> shape() const { return {dims.begin(), dims.begin() + rank}; }
};

inline constexpr float kStatisticRate = 0.1f;  // as PyTorch's momentum of BatchNorm2d

inline constexpr int64_t kTokenEmbedding = 0;     // id of the token embedding
inline constexpr int64_t kPositionEmbedding = 1;  // id of learned positions
inline constexpr int64_t kTypeEmbedding = 2;      // id of a BERT's token types

// Returns the parameters of the whole model. Backward completes gradients in descending order of
// id, so a tied embedding (id 0) is last.
std::vector<Parameter> parameter_table(const ModelConfig& config);

// Returns the ids that a block reads, ascending. The head's are the final norm, a BERT's transform
// and bias, and either the token embedding (if tied) or a head of its own.
std::vector<int64_t> block_parameters(const ModelConfig& config, int64_t block);

// Counts all logical elements; a tied embedding counts once.
int64_t parameter_count(const ModelConfig& config);

// One rank's part of a parameter, and its place in a flat arena of floats.
struct ArenaEntry {
  int64_t id = 0;
  int64_t offset = 0;             // floats; a multiple of 16 (64 bytes)
  std::array<int64_t, 2> dims{};  // of the local part, with padding rows
  int64_t count = 0;              // dims[0] * dims[1]
  // Whether this rank's stage counts it in the gradient norm, and saves it. A tied embedding that
  // two stages hold counts only in the stage of its block.
  bool counts_in_norm = true;
};

// The arena of one rank's parameters. Gradients and optimizer states use the same layout.
struct ParameterArena {
  std::vector<ArenaEntry> entries;  // ascending id
  int64_t count = 0;                // floats, gaps included
  TensorShard shard = {};           // that the entries are of

  // Returns the entry with that id, or null if the rank does not hold it.
  const ArenaEntry* find(int64_t id) const;
  // Places an entry after the others; its id is higher than theirs.
  void add(ArenaEntry entry);
};

// Returns the arena of a rank that has these chunks of the model, or one stage of it.
ParameterArena parameter_arena(const ModelConfig& config, const std::vector<Stage>& chunks,
                               const TensorShard& shard = {});
ParameterArena parameter_arena(const ModelConfig& config, const Stage& stage,
                               const TensorShard& shard = {});

// Elements of a rank's part with their indices in the whole model. Local elements come in rows of
// `columns`, whose first indices are `stride` apart; with columns 0 the indices are consecutive.
struct IndexedBlock {
  int64_t local = 0;  // element within the local part
  int64_t count = 0;
  int64_t first = 0;  // index of that element
  int64_t columns = 0;
  int64_t stride = 0;
};

// Numbers the elements of the whole model parameter by parameter, as one rank without tensor
// parallelism holds them, but without gaps. Returns the blocks of each entry, ascending in `local`.
// Random bits that depend on the index alone are the same in every layout. Elements of padding rows
// have indices too, which others may have.
// `table` and `whole` are those of the whole model (model_design.h has a shorter form).
std::vector<std::vector<IndexedBlock>> indexed_blocks(const std::vector<Parameter>& table,
                                                      const ParameterArena& whole,
                                                      const ParameterArena& arena);

// A run of consecutive elements that are adjacent both in a rank's part and in the logical tensor.
struct ShardRun {
  int64_t local = 0;   // element within the local part
  int64_t global = 0;  // element within the logical tensor
  int64_t count = 0;
};

// Describes the local part as runs of the logical tensor, ascending in both and without padding.
// Used for checkpoints that any mesh can load, and for initial values that do not depend on the
// mesh.
std::vector<ShardRun> shard_runs(const Parameter& parameter, const ArenaEntry& entry,
                                 const TensorShard& shard);

// Returns those of the runs that no shard with a lower index has: each element of the tensor is in
// those of exactly one shard.
std::vector<ShardRun> owned_runs(const Parameter& parameter, const ArenaEntry& entry,
                                 const TensorShard& shard);

// Elements of a rank's part that neighbouring shards also have (ParameterPart::pieces_max). The
// gradient of each is the sum of the gradients that those shards compute.
struct SharedRun {
  int64_t local = 0;  // element within the local part
  int64_t count = 0;  // 0: there are none
  // How many shards have them. The index of the first of these is a multiple of it.
  int64_t shards = 1;
};
SharedRun shared_run(const Parameter& parameter, const ArenaEntry& entry, const TensorShard& shard);

}  // namespace lockstep
