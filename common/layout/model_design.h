#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/layout/convnet_config.h"
#include "common/layout/cost.h"
#include "common/layout/mesh.h"
#include "common/layout/mlp_config.h"
#include "common/layout/model_config.h"
#include "common/layout/parameters.h"

namespace lockstep {

// A model of any family. The functions below answer what other code asks of a model without knowing
// its family; a new family is an alternative here, a case in each function of model_design.cc and
// one in agent/model/make_model.cc.
using ModelDesign = std::variant<ModelConfig, MlpConfig, ConvnetConfig>;

// Returns "gpt2", "llama", "bert", "mlp" or "convnet".
std::string_view family_name(const ModelDesign& design);
// Returns the dimensions of a transformer, null for any other family: for what only texts have,
// such as tokenizers, and for file formats of transformers.
const ModelConfig* transformer_of(const ModelDesign& design);
// Returns whether the head reads the token embedding, too.
bool is_tied(const ModelDesign& design);

// Returns every mistake as one kInvalid, one per line (model_problems(), mlp_problems(),
// convnet_problems()).
Status validate(const ModelDesign& design, int64_t tensor = 1, std::string_view path = "model");

// These are as for a ModelConfig, MlpConfig or ConvnetConfig (parameters.h, model_config.h). The
// blocks of an MLP are its layers, those of a convolutional network its units.
std::vector<Parameter> parameter_table(const ModelDesign& design);
std::vector<int64_t> block_parameters(const ModelDesign& design, int64_t block);
int64_t parameter_count(const ModelDesign& design);
ParameterArena parameter_arena(const ModelDesign& design, const std::vector<Stage>& chunks,
                               const TensorShard& shard = {});
ParameterArena parameter_arena(const ModelDesign& design, const Stage& stage,
                               const TensorShard& shard = {});
std::vector<std::vector<IndexedBlock>> indexed_blocks(const ModelDesign& design,
                                                      const ParameterArena& arena);
int64_t block_count(const ModelDesign& design);
// Returns whether a block's backward reads its parameters. The first block's does not, because
// nobody needs the gradient of its input, unless it has batch normalisation.
bool backward_reads(const ModelDesign& design, int64_t block);
Stage whole_model(const ModelDesign& design);
// Returns into how many stages the model can be cut at most: its layers, of which a residual block
// of a convolutional network counts as one.
int64_t stage_layers(const ModelDesign& design);
// Cuts the model into `size` stages whose slowest one takes the least time. 0 <= index < size <=
// stage_layers(design).
Stage pipeline_stage(const ModelDesign& design, int64_t size, int64_t index);
// Returns how many values of a sample pass from the stage before the block to that of the block.
// `sequence` is the sample's length in tokens, if it has tokens.
int64_t edge_values(const ModelDesign& design, int64_t sequence, int64_t block);
// Returns the chunks of the model that a stage of the mesh's pipeline has, ascending: one, or
// mesh.virtual_stages of them. Chunk i is part i * mesh.pipeline + stage of all parts. Expects
// part_problem() to find none.
std::vector<Stage> stage_chunks(const ModelDesign& design, const Mesh& mesh, int64_t stage);
// Returns the mistake in mesh.part_layers: a sentence without an end; empty if there is none.
std::string part_problem(const ModelDesign& design, const Mesh& mesh);
// Returns the chunks' blocks, ascending.
std::vector<int64_t> blocks_of(const std::vector<Stage>& chunks);
// Returns the layers whose outputs add to a residual stream; 0 if there is none.
int64_t residual_layers(const ModelDesign& design);

// Returns whether the data-parallel ranks take statistics over their micro-batches together.
bool shares_batches(const ModelDesign& design);

// Returns the tokens of the longest sample; 0 for families whose samples have no tokens.
int64_t tokens_per_sample(const ModelDesign& design);
// Returns whether it predicts masked tokens, and not the ones that follow.
bool predicts_masked(const ModelDesign& design);
// Returns the FLOPs of a sample, forward and backward. `sequence` is its length in tokens, if it
// has tokens. Without attention the formulas count 6 operations per parameter of a matrix.
double flops_per_sample(const ModelDesign& design, int64_t sequence, FlopsFormula formula);

enum class TensorType : uint8_t { kI32, kF32 };
inline constexpr int64_t kTensorValueBytes = 4;  // of both types

// A tensor of a batch: row-major [samples, values].
struct BatchTensor {
  std::string_view name;
  TensorType type = TensorType::kF32;
  int64_t values = 0;  // per sample

  bool operator==(const BatchTensor&) const = default;
};
inline constexpr size_t kBatchTensorsMax = 4;

// The tensors of a batch, and the number of terms that its mean loss is taken over.
struct BatchDesign {
  std::vector<BatchTensor> tensors;  // at most kBatchTensorsMax; the order of DeviceBatch
  int64_t counted = 0;               // terms of the loss per sample: tokens, classes or values
  bool has_accuracy = false;         // the mean of right answers is defined, too
  bool has_top5 = false;             // and that of answers among the five most likely

  int64_t bytes(int64_t samples) const;
};
// - Transformers: `tokens` and `targets`, `sequence` each. A target below 0 is not counted. In a
//   bidirectional one, masked_count(sequence) of the targets count.
// - A convolutional network: `images` (height x width x channels) and `labels`, as an MLP's.
// - An MLP: `features`, and `labels` (the class; below 0: not counted) or `values`.
BatchDesign batch_design(const ModelDesign& design, int64_t sequence);

}  // namespace lockstep
