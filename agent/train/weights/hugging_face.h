#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/train/checkpoint/safetensors.h"
#include "common/base/result.h"
#include "common/layout/parameters.h"

namespace lockstep::train {

// Weights as Hugging Face stores them. The names are those of our parameters, but for these:
// - GPT2LMHeadModel: in some files they are without `transformer.`; the four matrices of a block
//   are Conv1D's, [in, out], ours are [out, in]. The table of positions may be longer than the
//   model's context, which takes its first rows. The buffers that older versions stored
//   (h.0.attn.bias, the causal mask, and h.0.attn.masked_bias) are no parameters.
// - LlamaForCausalLM: the parts of a packed parameter are tensors of their own (q_proj, k_proj and
//   v_proj of our qkv_proj). rotary_emb.inv_freq, which older versions stored, is no parameter.
// - BertForMaskedLM: query, key and value are tensors of their own too, their biases as well. In
//   some files the norms' weight and bias are gamma and beta. The pooler, cls.seq_relationship,
//   position_ids and cls.predictions.decoder.bias, a copy of cls.predictions.bias, are no
//   parameters of ours.
// Source: github.com/huggingface/transformers, models/gpt2/modeling_gpt2.py, pytorch_utils.py,
// models/llama/modeling_llama.py and models/bert/modeling_bert.py.

// The most bytes that messages show of a name from a file.
constexpr size_t kNameShown = 200;

// A tensor of a file that is a parameter, or some rows of it.
struct StoredTensorInfo {
  std::string name;
  std::vector<int64_t> shape;  // in the file
  int64_t first_row = 0;       // of the parameter
  int64_t rows = 0;
  bool is_transposed = false;  // the file has the transpose of our matrix
  bool may_be_longer = false;  // the file may have more rows: those of later positions
};

// Returns the tensors that Hugging Face stores for a parameter: one tensor, or one per part, in row
// order.
std::vector<StoredTensorInfo> hugging_face_tensors(const Parameter& parameter);

// Returns the name of a head's weight that is not tied.
std::string_view head_name(Family family);

// The dimensions that the tensors of a model tell, as Hugging Face stores them or as checkpoints of
// ours do; not how many heads there are, which is the fewest that keys and values of that width can
// have, nor whether the head is tied. kInvalid where an embedding is missing or no matrix. Not yet
// that the model can be built.
Result<ModelConfig> dimensions_of(const SafetensorsHeader& header);

// Where a file has what a model needs: pointers into the header that was asked.
struct HuggingFaceWeights {
  // By id, for each of hugging_face_tensors(): F32, F16 or BF16, of its shape, or longer.
  std::vector<std::vector<const TensorInfo*>> parameters;
  // The tensor that the file stores for a tied head, with the shape of the token embedding. Null:
  // not stored.
  const TensorInfo* head = nullptr;
};

// kInvalid where the file is another model's: dimensions differ (but for more positions), a tensor
// is missing, has another shape or dtype, or there is one that the model has no place for. The
// message names the field of the job or the tensor, what was found and what would be right.
// `config` can be built.
Result<HuggingFaceWeights> match_hugging_face(const SafetensorsHeader& header,
                                              const ModelConfig& config);

}  // namespace lockstep::train
