#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace lockstep::train {

// Describes the exported weights, for the report to the user.
struct ExportedWeights {
  std::string checkpoint;  // its folder
  int64_t step = 0;
  int64_t tensors = 0;
  int64_t parameters = 0;
};

// Writes the parameters of a checkpoint to a new safetensors file as Hugging Face's GPT2LMHeadModel
// or LlamaForCausalLM has them (hugging_face.h; fp32, GPT-2's names with `transformer.`, a tied
// head not stored): import_weights gets the same bits back. `from` is a checkpoint's folder, or one
// of checkpoints, of which the newest that verifies is taken. The file is there as a whole or not
// at all. kInvalid where it is there already or the checkpoint is of no model that we know,
// kNotFound where there is no checkpoint, kCorrupt, else as storage says. One matrix is held in
// memory at a time.
Result<ExportedWeights> export_weights(const std::string& from, const std::string& to);

}  // namespace lockstep::train
