#pragma once

#include <string_view>
#include <vector>

#include "agent/train/checkpoint/safetensors.h"
#include "common/base/result.h"
#include "common/layout/parameters.h"

namespace lockstep {

// GPT-2's weights as Hugging Face's GPT2LMHeadModel stores them. The names are those of our
// parameters, in some files without `transformer.`; the four matrices of a block are Conv1D's, [in,
// out], ours are [out, in]. Buffers that older versions stored beside them (h.0.attn.bias, the
// causal mask, and h.0.attn.masked_bias) are none of the model's parameters. Source:
// github.com/huggingface/transformers, models/gpt2/modeling_gpt2.py and pytorch_utils.py.

// Whether the file has the transpose of our matrix.
bool is_conv1d(const Parameter& parameter);
// The parameter's shape in the file.
std::vector<int64_t> hugging_face_shape(const Parameter& parameter);

// The dimensions that the tensors of a GPT-2 tell, in either layout; heads, which they don't, is 1.
// kInvalid where an embedding is missing or no matrix. Not yet that the model can be built.
Result<ModelConfig> dimensions_of(const SafetensorsHeader& header);

// Where a file has what a model needs: pointers into the header that was asked.
struct HuggingFaceWeights {
  std::vector<const TensorInfo*> parameters;  // by id; F32, F16 or BF16, of hugging_face_shape()
  const TensorInfo* head = nullptr;           // of the token embedding's shape; null: not stored
};

// kInvalid where the file is another model's: dimensions differ, a tensor is missing, has another
// shape or dtype, or there is one that the model has no place for. The message names the field of
// the job or the tensor, what was found and what would be right. `config` can be built.
Result<HuggingFaceWeights> match_hugging_face(const SafetensorsHeader& header,
                                              const ModelConfig& config);

}  // namespace lockstep
